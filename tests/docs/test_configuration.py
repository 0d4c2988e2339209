"""docs/configuration.md is what the settings class says."""

import re

import pytest

from local.documentation import configuration
from local.documentation.__main__ import PAGE
from local.documentation.configuration import Unexplained, document, read_settings
from local.documentation.meanings import GROUPS


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text("utf-8") == document(), "run `python -m local.documentation`"


def test_defaults_are_those_that_are_read() -> None:
    defaults = read_settings()

    assert defaults["ORDERS_QUEUE"] == "orders"
    assert defaults["IDEMPOTENCY_STORE"] == "table, cosmos"
    assert defaults["IDEMPOTENCY_LEASE_SECONDS"] == "30"
    assert defaults["IDEMPOTENCY_RETENTION_DAYS"] == "30"
    assert defaults["PAYMENT_PROVIDER_URL"] == ""


def test_a_setting_that_is_explained_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {title: dict(group) for title, group in GROUPS.items()}
    del groups["Store"]["ORDERS_CONTAINER"]
    groups["Store"]["GONE"] = "Read by nobody."
    monkeypatch.setattr(configuration, "GROUPS", groups)

    with pytest.raises(Unexplained, match=r"missing \['ORDERS_CONTAINER'\].*nobody \['GONE'\]"):
        document()


def test_the_readme_explains_only_settings_that_there_are() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    section = readme.partition("## Settings")[2].partition("\n## ")[0]

    named = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert named
    assert named <= {name for group in GROUPS.values() for name in group}
