"""Bicep as data: what a file declares, with everything evaluated that its literals decide.

A literal is a Python value; a variable is its value; a loop over a variable is one resource per
item. What only a deployment knows is `Unknown`, with its source text. No Bicep CLI is needed, and
none is replaced: types, functions and API versions are the compiler's to check.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bicep.language()))


@dataclass(frozen=True)
class Unknown:
    """An expression whose value is known at deployment; a call's arguments as far as they are known."""

    text: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Resource:
    """A resource or a module; ``kind`` is its type without the version, or the module's file."""

    symbol: str
    kind: str
    existing: bool
    condition: str | None
    body: dict[str, Any]


@dataclass
class BicepFile:
    """What one file declares. ``outputs`` are evaluated like everything else."""

    path: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    resources: list[Resource] = field(default_factory=list)
    modules: list[Resource] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, given: Mapping[str, Any] | None = None) -> Self:
        """Read a file with these parameters given. Raises ValueError where it is no Bicep."""
        root = syntax(path)
        file = cls(path)
        for node in root.children:
            name = _symbol(node)
            if node.type == "parameter_declaration":
                default = node.children[-1] if _has(node, "=") else None
                value = Unknown(name) if default is None else file._value(default)
                file.parameters[name] = (given or {}).get(name, value)
            elif node.type == "variable_declaration":
                file.variables[name] = file._value(node.children[-1])
        for node in root.children:
            if node.type == "resource_declaration":
                file.resources.extend(file._declared(node))
            elif node.type == "module_declaration":
                file.modules.extend(file._declared(node))
            elif node.type == "output_declaration":
                file.outputs[_symbol(node)] = file._value(node.children[-1])
        return file

    def of_kind(self, kind: str) -> list[Resource]:
        """The resources of a type that this file deploys."""
        return [each for each in self.resources if each.kind == kind and not each.existing]

    def _declared(self, node: Node) -> Iterator[Resource]:
        kind = str(self._value(_first(node, "string")))
        body = node.children[-1]
        if body.type != "for_statement":
            yield self._resource(node, kind, body, {})
            return
        item, items = (each for each in body.children if each.type == "identifier")
        known = self._value(items)
        for each in known if isinstance(known, list) else [Unknown(_text(item))]:
            yield self._resource(node, kind, body.children[-2], {_text(item): each})

    def _resource(self, node: Node, kind: str, body: Node, local: Mapping[str, Any]) -> Resource:
        condition = None
        if body.type == "if_statement":
            condition = _text(_first(body, "parenthesized_expression"))[1:-1]
            body = body.children[-1]
        return Resource(
            symbol=_symbol(node),
            kind=kind.partition("@")[0],
            existing=_has(node, "existing"),
            condition=condition,
            body=self._value(body, local),
        )

    def _value(self, node: Node, local: Mapping[str, Any] | None = None) -> Any:
        local = local or {}
        operands = [each for each in node.named_children if each.type != "comment"]
        match node.type:
            case "string":
                return self._string(node, local)
            case "number":
                return int(_text(node))
            case "boolean":
                return _text(node) == "true"
            case "null":
                return None
            case "array":
                return [self._value(each, local) for each in operands]
            case "object":
                return dict(self._property(each, local) for each in operands)
            case "identifier":
                known = {**self.parameters, **self.variables, **local}
                return known.get(_text(node), Unknown(_text(node)))
            case "member_expression":
                owner = self._value(operands[0], local)
                if isinstance(owner, dict):
                    return owner[_text(operands[-1])]
            case "binary_expression" if _has(node, "=="):
                left, right = (self._value(each, local) for each in operands)
                if not isinstance(left, Unknown) and not isinstance(right, Unknown):
                    return left == right
            case "ternary_expression":
                chosen = self._value(operands[0], local)
                if isinstance(chosen, bool):
                    return self._value(operands[1 if chosen else 2], local)
            case "call_expression":
                parts = [self._value(each, local) for each in operands[-1].named_children]
                if _text(operands[0]) == "union" and all(isinstance(part, dict) for part in parts):
                    return {name: value for part in parts for name, value in part.items()}
                return Unknown(_text(node), tuple(parts))
        return Unknown(_text(node))

    def _string(self, node: Node, local: Mapping[str, Any]) -> Any:
        parts = []
        for part in node.named_children:
            if part.type == "interpolation":
                value = self._value(part.named_children[0], local)
                if isinstance(value, Unknown):
                    return Unknown(_text(node))
                parts.append(str(value))
            else:
                parts.append(_text(part))
        return "".join(parts)

    def _property(self, node: Node, local: Mapping[str, Any]) -> tuple[str, Any]:
        return _text(node.children[0]).strip("'"), self._value(node.children[-1], local)


def syntax(path: Path) -> Node:
    """The syntax tree of a file. Raises ValueError, naming the line, where it is no Bicep."""
    root = _PARSER.parse(path.read_bytes()).root_node
    for node in walk(root):
        if node.is_error or node.is_missing:
            raise ValueError(f"{path.name}:{node.start_point.row + 1}: {_text(node)[:80]!r}")
    return root


def walk(node: Node) -> Iterator[Node]:
    """A node and everything in it."""
    yield node
    for child in node.children:
        yield from walk(child)


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _has(node: Node, kind: str) -> bool:
    return any(child.type == kind for child in node.children)


def _first(node: Node, kind: str) -> Node:
    return next(child for child in node.children if child.type == kind)


def _symbol(node: Node) -> str:
    return next((_text(child) for child in node.children if child.type == "identifier"), "")
