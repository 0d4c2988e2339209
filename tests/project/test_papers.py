"""Licence and changelog have their form."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_licence_is_the_one_that_the_distribution_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / "LICENSE").read_text("utf-8")

    assert project["license"] == "MIT"
    assert text.startswith("MIT License\n")
    assert project["authors"][0]["name"] in text


def test_the_changelog_begins_with_what_is_not_released_and_sorts_by_kind() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert releases[0] == "[Unreleased]"
    assert [
        r for r in releases[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", r)
    ] == []
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= KINDS
