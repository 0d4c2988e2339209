"""What pyproject.toml says of the module as a distribution is what the module is."""

import ast
import itertools
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "shared" / "idempotency"

IMPORTED_FROM = {
    "aiohttp": "aiohttp",
    "azure.core": "azure-core",
    "azure.cosmos": "azure-cosmos",
    "azure.data": "azure-data-tables",
    "azure.functions": "azure-functions",
    "azure.identity": "azure-identity",
    "azure.servicebus": "azure-servicebus",
    "azurefunctions.extensions": "azurefunctions-extensions-bindings-servicebus",
    "msgspec": "msgspec",
    "opentelemetry": "opentelemetry-api",
    "rich": "rich",
    "standardwebhooks": "standardwebhooks",
    "typer": "typer",
}
"""Which distribution an import comes from."""

WITH_ANOTHER = {"azure-core"}
"""Distributions that every one which needs them brings along."""


@pytest.fixture
def project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return project


def _name(requirement: str) -> str:
    return requirement.partition(">")[0].partition("[")[0]


def _third_party(path: Path) -> set[str]:
    """Absolute imports of a file that are not the standard library's."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}


def test_every_package_of_the_module_is_in_the_wheel(project: dict[str, Any]) -> None:
    packages = {
        ".".join(("idempotent_consumer", *found.parent.relative_to(MODULE).parts))
        for found in MODULE.rglob("*.py")
    }

    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_the_module_imports_itself_by_relative_names_only() -> None:
    """Copied to any place, or installed under the wheel's name, it must find itself."""
    absolute = {
        str(path.relative_to(MODULE)): names
        for path in MODULE.rglob("*.py")
        if (names := {n for n in _third_party(path) if n.startswith(("shared", "idempotent_"))})
    }

    assert absolute == {}


def test_everything_the_module_imports_is_a_dependency_or_an_extra(project: dict[str, Any]) -> None:
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    named = {_name(each) for each in project["project"]["dependencies"]}
    named |= {_name(each) for key in extras if key not in ("dev", "local") for each in extras[key]}

    for path in MODULE.rglob("*.py"):
        for imported in _third_party(path):
            start = next((s for s in IMPORTED_FROM if f"{imported}.".startswith(f"{s}.")), None)
            assert start is not None, f"{path}: which distribution is {imported} from?"
            assert IMPORTED_FROM[start] in named | WITH_ANOTHER, f"{path}: {imported}"


def test_bounds_are_the_same_wherever_a_distribution_is_named(project: dict[str, Any]) -> None:
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    requirements = {_name(line): line for line in lines if line and not line.startswith("#")}
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    everywhere = [*project["project"]["dependencies"], *itertools.chain(*extras.values())]

    compared = {each for each in everywhere if _name(each) in requirements}
    assert compared == {requirements[_name(each)] for each in compared}
    assert len(compared) >= 8
