"""The module keeps nothing of a call where another call could meet it: no global mutable state.

What a call needs to find again is in context variables, which end with its task; what a consumer
remembers is its own.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shared.idempotency

CORE = Path(shared.idempotency.__file__).parent
NOT_RUN_BY_AN_APP = {"cli", "exploration", "testing"}
MODULES = sorted(
    path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in NOT_RUN_BY_AN_APP
)
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "remove", "setdefault", "update",
}  # fmt: skip
CACHES = {"cache", "lru_cache"}


def changes(source: str) -> Iterator[str]:
    """Every place where something of a module is changed after the module was made."""
    tree = ast.parse(source)
    ours = {
        target.id for node in tree.body for target in _targets(node) if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Global():
                yield f"line {node.lineno}: global {', '.join(node.names)}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if (
                name in ours and method in CHANGES
            ):
                yield f"line {node.lineno}: {name}.{method}()"
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if (
                name in ours
            ):
                yield f"line {node.lineno}: {name}[...] ="
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for decorator in node.decorator_list:
                    if {
                        n.attr for n in ast.walk(decorator) if isinstance(n, ast.Attribute)
                    } & CACHES:
                        yield f"line {node.lineno}: {node.name} is cached"
            case ast.ClassDef():
                for each in node.body:
                    value = getattr(each, "value", None)
                    fields = any("Struct" in ast.unparse(base) for base in node.bases)
                    if isinstance(value, ast.Dict | ast.List | ast.Set) and not fields:
                        yield f"line {each.lineno}: {node.name} shares a {type(value).__name__}"


def _targets(node: ast.stmt) -> list[ast.expr]:
    match node:
        case ast.Assign():
            return node.targets
        case ast.AnnAssign():
            return [node.target]
    return []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_changes_nothing_of_its_own_once_it_is_made(path: Path) -> None:
    assert list(changes(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "seen = set()\ndef f(k): seen.add(k)",
        "locks: dict = {}\ndef f(k): locks[k] = 1",
        "n = 0\ndef f():\n    global n\n    n += 1",
        "@functools.lru_cache(maxsize=9)\ndef f(k): return k",
        "class Store:\n    records = {}",
    ],
)
def test_what_would_be_shared_is_found(source: str) -> None:
    assert len(list(changes(source))) == 1


def test_there_are_modules_to_look_at() -> None:
    assert {path.name for path in MODULES} >= {"consumer.py", "inbox.py", "table.py", "http.py"}
