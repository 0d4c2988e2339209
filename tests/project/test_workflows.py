"""The GitHub workflows run what there is, with no more rights than they need; they do not run here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SET_BY_AZD = {"AZURE_PRINCIPAL_ID"}


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(request.param.read_text("utf-8"))
    return read


def _named(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "workflows" / name).read_text("utf-8")
    )
    return read


def _steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_every_action_is_pinned(workflow: dict[str, Any]) -> None:
    used = [step["uses"] for step in _steps(workflow) if "uses" in step]

    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@(v\d+|[0-9a-f]{40})", each)] == []


def test_rights_are_given_one_by_one(workflow: dict[str, Any]) -> None:
    given = {**workflow["permissions"]}
    for job in workflow["jobs"].values():
        given |= job.get("permissions", {})

    assert set(given.items()) <= {("contents", "read"), ("id-token", "write")}


def test_no_secret_is_read_and_no_checkout_keeps_its_token(workflow: dict[str, Any]) -> None:
    assert "secrets." not in json.dumps(workflow, default=str)
    for step in _steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_nothing_that_others_write_becomes_part_of_a_command(workflow: dict[str, Any]) -> None:
    assert [step["run"] for step in _steps(workflow) if "${{" in step.get("run", "")] == []


def test_every_job_ends(workflow: dict[str, Any]) -> None:
    assert all(job["timeout-minutes"] <= 45 for job in workflow["jobs"].values())


def test_pull_requests_from_anywhere_get_no_token() -> None:
    assert "id-token" not in json.dumps(_named("test.yml"), default=str)


def test_what_is_run_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    commands = [
        line.split()
        for step in _steps(_named("test.yml"))
        for line in step.get("run", "").splitlines()
    ]

    assert [".ci/run"] in commands
    assert {line[1] for line in commands if line[0] == "make"} <= targets
    assert ["make", "infra-check"] in commands
    assert any(line[:2] == ["bicep", "build"] for line in commands)


def test_every_job_has_the_versions_that_the_project_names() -> None:
    engines = json.loads((ROOT / "local" / "package.json").read_text("utf-8"))["engines"]["node"]
    for job in _named("test.yml")["jobs"].values():
        [python] = [
            s for s in job["steps"] if s.get("uses", "").startswith("actions/setup-python@")
        ]
        [node] = [s for s in job["steps"] if s.get("uses", "").startswith("actions/setup-node@")]
        assert python["with"]["python-version-file"] == ".python-version"
        assert engines == f">={node['with']['node-version']}"


def test_a_deployment_names_every_value_that_the_bicep_asks_for() -> None:
    parameters = (ROOT / "infra" / "main.parameters.json").read_text("utf-8")
    asked = set(re.findall(r"\$\{(\w+)(?:=[^}]*)?\}", parameters)) - SET_BY_AZD
    [job] = _named("deploy.yml")["jobs"].values()

    assert asked
    assert asked <= job["env"].keys()


def test_a_deployment_is_begun_by_hand_and_guarded_by_its_environment() -> None:
    deploy: dict[Any, Any] = _named("deploy.yml")
    begun_by = deploy[True]  # `on`, to YAML 1.1
    [job] = deploy["jobs"].values()

    assert list(begun_by) == ["workflow_dispatch"]
    assert job["environment"] == "${{ inputs.environment }}"
    assert job["permissions"]["id-token"] == "write"
    assert deploy["permissions"] == {}
