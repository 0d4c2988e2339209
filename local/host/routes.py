"""Routes of HTTP functions: templates such as `orders/{id:int}/{*rest}` and which one matches."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from .bindings import Function

PARAMETER = re.compile(r"\{(\*{0,2})(\w+)((?::[^{}=?]+)*)(?:=([^{}]*))?(\?)?\}")
CONSTRAINTS: Mapping[str, str] = {
    "int": r"[+-]?\d+",
    "long": r"[+-]?\d+",
    "alpha": r"[A-Za-z]+",
    "bool": r"(?:true|false)",
    "guid": r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}",
    "decimal": r"[+-]?\d+(?:\.\d+)?",
    "double": r"[+-]?\d+(?:\.\d+)?",
    "float": r"[+-]?\d+(?:\.\d+)?",
}


class RouteError(Exception):
    """A route template that cannot be served; the message names it."""


@dataclass(frozen=True, slots=True)
class Route:
    """One function's route. `methods` is empty when all are served."""

    function: Function
    template: str
    methods: frozenset[str]
    pattern: re.Pattern[str]
    defaults: Mapping[str, str]
    order: tuple[int, ...]

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """The values of the route's parameters when this route serves the request."""
        found = self.pattern.fullmatch(path)
        if found is None or (self.methods and method.upper() not in self.methods):
            return None
        given = {name: unquote(value) for name, value in found.groupdict().items() if value}
        return {**self.defaults, **given}


def route(function: Function, prefix: str) -> Route:
    """The route of an HTTP function under the prefix of host.json.

    Raises RouteError for a template it does not understand.
    """
    trigger = function.trigger
    template = str(trigger.get("route") or function.name).strip("/")
    full = f"{prefix}/{template}".strip("/")
    pattern = ""
    order: list[int] = []
    defaults: dict[str, str] = {}
    for segment in full.split("/"):
        text, rank = _segment(segment, function.name, defaults)
        pattern += text
        order.append(rank)
    methods = frozenset(str(method).upper() for method in trigger.get("methods") or ())
    compiled = re.compile(pattern + "/?", re.IGNORECASE)
    return Route(function, full, methods, compiled, defaults, tuple(order))


def find(routes: list[Route], method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The most specific route for the request: literal before constrained before free segments."""
    for candidate in sorted(routes, key=lambda route: route.order):
        values = candidate.match(method, path)
        if values is not None:
            return candidate, values
    return None


def _segment(segment: str, function: str, defaults: dict[str, str]) -> tuple[str, int]:
    """The pattern for one segment with its leading slash, and how unspecific it is."""
    rank = 0
    skippable = False

    def parameter(match: re.Match[str]) -> str:
        nonlocal rank, skippable
        star, name, constraints, default, optional = match.groups()
        if default is not None:
            defaults[name] = default
        kinds = [kind for kind in constraints.split(":") if kind]
        rank = max(rank, 3 if star else 1 if kinds else 2)
        skippable = bool(star or optional) or default is not None
        if star:
            return f"(?P<{name}>.*)"
        inner = "".join(f"(?={_constraint(kind, function)}(?:/|$))" for kind in kinds)
        return f"{inner}(?P<{name}>[^/]+)"

    pieces, end = "", 0
    for match in PARAMETER.finditer(segment):
        pieces += re.escape(segment[end : match.start()]) + parameter(match)
        end = match.end()
    rest = segment[end:]
    if "{" in rest or "}" in rest:
        raise RouteError(f"function '{function}': route segment '{segment}' is not understood")
    pieces += re.escape(rest)
    return (f"(?:/{pieces})?", rank + 1) if skippable else (f"/{pieces}", rank)


def _constraint(kind: str, function: str) -> str:
    if kind in CONSTRAINTS:
        return CONSTRAINTS[kind]
    simple: Mapping[str, Callable[[str], str]] = {
        "length": lambda n: rf"[^/]{{{n}}}",
        "minlength": lambda n: rf"[^/]{{{n},}}",
        "maxlength": lambda n: rf"[^/]{{0,{n}}}",
        "regex": lambda text: text.strip("^$"),
    }
    named = re.fullmatch(r"(\w+)\((.*)\)", kind)
    if named and named[1] in simple:
        return simple[named[1]](named[2])
    raise RouteError(f"function '{function}': route constraint '{kind}' is not understood")
