"""What the Bicep compiler would refuse by name alone, since no compiler runs here."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree_sitter import Node

from local.deployment import infra
from local.deployment.bicep import BicepFile, Unknown, syntax, walk
from local.deployment.infra import INFRA, ROOT

FILES = sorted(INFRA.glob("*.bicep"))
DECLARATIONS = {
    "module_declaration",
    "output_declaration",
    "parameter_declaration",
    "resource_declaration",
    "variable_declaration",
}
FUNCTIONS = {
    "concat", "empty", "guid", "loadTextContent", "resourceGroup", "split", "subscription",
    "subscriptionResourceId", "tenant", "toLower", "union", "uniqueString",
}  # fmt: skip
"""Functions of Bicep that are used here; a new one is to be looked up, then added."""


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


def test_every_name_that_is_used_is_declared(path: Path) -> None:
    declared = set(_declared(syntax(path)))

    assert set(_used(syntax(path))) - declared - FUNCTIONS == set()


def test_every_name_that_is_declared_is_used(path: Path) -> None:
    file = BicepFile.read(path)

    used = Counter(_used(syntax(path)))
    assert {*file.parameters, *file.variables} - used.keys() == set()


def test_every_module_gets_the_parameters_it_declares() -> None:
    for module in infra.read("main").modules:
        file = BicepFile.read(INFRA / module.kind)
        given = module.body["params"].keys()
        needed = {name for name, value in file.parameters.items() if isinstance(value, Unknown)}

        assert given <= file.parameters.keys(), module.kind
        assert needed <= given, module.kind


def test_every_output_of_a_module_that_is_read_is_there() -> None:
    outputs = {each.symbol: BicepFile.read(INFRA / each.kind).outputs for each in
               infra.read("main").modules}  # fmt: skip
    text = (INFRA / "main.bicep").read_text()

    read = re.findall(r"\b(\w+)!?\.outputs\.(\w+)", text)
    assert read
    for module, output in read:
        assert output in outputs[module], f"{module}.outputs.{output}"


def test_every_module_is_deployed() -> None:
    deployed = {module.kind for module in infra.read("main").modules}

    assert deployed == {path.name for path in FILES} - {"main.bicep"}


def test_every_parameter_has_a_value_that_azd_fills_in() -> None:
    given = json.loads((INFRA / "main.parameters.json").read_text())["parameters"]

    assert given.keys() == infra.read("main").parameters.keys()
    by_azd = {"AZURE_ENV_NAME", "AZURE_LOCATION", "AZURE_PRINCIPAL_ID"}
    for name, entry in given.items():
        found = re.fullmatch(r"\$\{(\w+)(=\w*)?\}", entry["value"])
        assert found, name
        assert found[2] or found[1] in by_azd, name


def test_azd_finds_the_app_by_its_service_name() -> None:
    tags = [each for each in infra.read("app").resources if each.kind == "Microsoft.Web/sites"]
    named = re.findall(r"'azd-service-name': '(\w+)'", tags[0].body["tags"].text)

    services = re.findall(
        r"^services:\n {2}(\w+):", (ROOT / "azure.yaml").read_text(), re.MULTILINE
    )
    assert named == services


def test_the_app_runs_on_the_python_it_is_tested_on() -> None:
    [app] = [each for each in infra.read("app").resources if each.kind == "Microsoft.Web/sites"]
    runtime = app.body["properties"]["functionAppConfig"]["runtime"]

    assert runtime == {"name": "python", "version": (ROOT / ".python-version").read_text().strip()}


def test_what_the_commands_read_is_an_output_and_what_they_set_a_parameter() -> None:
    outputs = infra.read("main").outputs.keys()
    parameters = re.findall(r"\$\{(\w+)", (INFRA / "main.parameters.json").read_text())
    workflow = (ROOT / ".github" / "workflows" / "deploy.yml").read_text()
    variables = re.findall(r"vars\.(\w+)", workflow)
    read = set(re.findall(r"\b(?:AZURE|SERVICEBUS|COSMOS|LOG)_[A-Z_]+\b", _told()))

    assert "SERVICEBUS_FQDN" in read
    assert read - outputs - set(parameters) - set(variables) == set()


def _told() -> str:
    """What the README of the deployment and the smoke test say."""
    return (INFRA / "README.md").read_text() + (ROOT / "local/deployment/smoke.py").read_text()


def _declared(root: Node) -> Iterator[str]:
    for node in walk(root):
        if node.type in DECLARATIONS or node.type == "for_statement":
            yield next(_text(child) for child in node.children if child.type == "identifier")


def _used(node: Node) -> Iterator[str]:
    """Identifiers in expressions: no keys, no declared names, no decorators."""
    names = [child for child in node.children if child.type == "identifier"]
    if node.type in DECLARATIONS or node.type == "for_statement":
        passed = names[:1]
    else:
        passed = node.children[:1] if node.type == "object_property" else []
    for child in node.children:
        if child in passed or child.type == "decorators":
            continue
        if child.type == "identifier":
            yield _text(child)
        yield from _used(child)


def _text(node: Node) -> str:
    return (node.text or b"").decode()
