"""What the editor and the dev container are told to run is there."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / ".vscode").glob("*.json")), ROOT / ".devcontainer" / "devcontainer.json"]

FUNC_DEBUG_PORT = 9091
"""The extension's default for Python."""


def _read(path: Path) -> dict[str, Any]:
    """JSON with comments, as these files are."""
    text = re.sub(
        r"""("(?:[^"\\]|\\.)*")|//[^\n]*""", lambda m: m[1] or "", path.read_text("utf-8")
    )
    read: dict[str, Any] = json.loads(text)
    return read


@pytest.fixture
def launch() -> list[dict[str, Any]]:
    configurations: list[dict[str, Any]] = _read(ROOT / ".vscode" / "launch.json")["configurations"]
    return configurations


@pytest.fixture
def tasks() -> dict[str, dict[str, Any]]:
    return {task["label"]: task for task in _read(ROOT / ".vscode" / "tasks.json")["tasks"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_can_be_read(path: Path) -> None:
    assert _read(path)


def test_every_module_that_is_launched_is_there(launch: list[dict[str, Any]]) -> None:
    modules = {each["module"] for each in launch if "module" in each}

    assert {"local.start", "local.host"} <= modules
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()


def test_what_is_to_run_before_is_a_task(
    launch: list[dict[str, Any]], tasks: dict[str, dict[str, Any]]
) -> None:
    before = {each["preLaunchTask"] for each in launch if "preLaunchTask" in each}
    before |= {task["dependsOn"] for task in tasks.values() if "dependsOn" in task}

    assert before <= tasks.keys()


def test_the_debugger_goes_where_the_functions_extension_has_func_listen(
    launch: list[dict[str, Any]], tasks: dict[str, dict[str, Any]]
) -> None:
    [attach] = [each for each in launch if each["request"] == "attach"]

    assert tasks[attach["preLaunchTask"]]["type"] == "func"
    assert attach["connect"]["port"] == FUNC_DEBUG_PORT


def test_tasks_make_what_can_be_made(tasks: dict[str, dict[str, Any]]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    container = _read(ROOT / ".devcontainer" / "devcontainer.json")
    commands = [task["command"] for task in tasks.values() if task["type"] == "shell"]

    for command in [*commands, container["postCreateCommand"]]:
        make, target, *_ = command.split()
        assert make == "make"
        assert target in targets


def test_the_container_has_the_versions_that_the_project_names() -> None:
    container = _read(ROOT / ".devcontainer" / "devcontainer.json")
    [node] = [
        v
        for k, v in container["features"].items()
        if k.startswith("ghcr.io/devcontainers/features/node:")
    ]
    engines = json.loads((ROOT / "local" / "package.json").read_text("utf-8"))["engines"]["node"]

    assert f":{(ROOT / '.python-version').read_text().strip()}-" in container["image"]
    assert engines == f">={node['version']}"


def test_the_container_brings_the_extensions_that_are_recommended() -> None:
    recommended = _read(ROOT / ".vscode" / "extensions.json")["recommendations"]
    brought = _read(ROOT / ".devcontainer" / "devcontainer.json")["customizations"]["vscode"]

    assert set(brought["extensions"]) <= set(recommended)
