"""docs/configuration.md: every app setting, as the settings class reads it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from local.deployment import infra
from shared import settings
from shared.settings import Settings

from .meanings import GROUPS

_READERS = ("_text", "_choice", "_seconds")
"""What the settings class reads with, where there is a default: the third argument."""

_MINIMAL = {
    "AzureWebJobsStorage": "UseDevelopmentStorage=true",
    "COSMOS_CONNECTION": "AccountEndpoint=https://localhost:8081/;AccountKey=a;",
    "ServiceBusConnection": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=a",
}

HEAD = """\
# Configuration

<!-- Made by `python -m local.documentation`; a test fails when it is not what the code says. -->

App settings, from `local.settings.json` on a developer's machine and from `infra/app.bicep` when deployed.
They are read once, at start; one that is wrong stops the app with a message that names it. The policy's
numbers are checked against each other.

Of several values, the first is the default. *Deployed* is what `infra/app.bicep` sets where it is something
else, and neither an address nor an identity.
"""

_BY_EXAMPLE = ("example", infra.CLIENT_ID, "InstrumentationKey")
"""In values of `infra.app_settings` that a deployment fills in."""


class Recording(Mapping[str, str]):
    """Settings that remember which names were asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.asked.append(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Unexplained(Exception):
    """A setting is read and explained nowhere, or explained and read nowhere."""


def document() -> str:
    """The page. Raises Unexplained when meanings.py does not tell of every setting and no other."""
    defaults = read_settings()
    deployed = infra.app_settings("cosmos")
    explained = {name for group in GROUPS.values() for name in group}
    known = defaults.keys() | deployed.keys()
    if explained != known:
        raise Unexplained(
            f"local/documentation/meanings.py: missing {sorted(known - explained)}, "
            f"read by nobody {sorted(explained - known)}"
        )
    return HEAD + "".join(
        _table(title, group, defaults, deployed) for title, group in GROUPS.items()
    )


def read_settings() -> dict[str, str]:
    """Every name that the settings class reads, with its default; empty where there is none."""
    defaults: dict[str, str] = {}

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        def noted(values: Mapping[str, str], name: str, default: Any) -> Any:
            choices = default if isinstance(default, tuple) else (default,)
            defaults[name] = ", ".join(_plain(each) for each in choices)
            return read(values, name, default)

        return noted

    with ExitStack() as patches:
        for name in _READERS:
            patches.enter_context(patch.object(settings, name, noting(getattr(settings, name))))
        for store in ("table", "cosmos"):
            recording = Recording({**_MINIMAL, "IDEMPOTENCY_STORE": store})
            Settings.read(recording)
            for name in recording.asked:
                defaults.setdefault(name, "")
    return defaults


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(
    title: str, group: Mapping[str, str], defaults: Mapping[str, str], deployed: Mapping[str, str]
) -> str:
    lines = [f"\n## {title}\n", "| setting | default | deployed | |", "|---|---|---|---|"]
    for name, meaning in group.items():
        default = defaults.get(name, "")
        chosen = deployed.get(name, "")
        if chosen == default.partition(",")[0] or any(each in chosen for each in _BY_EXAMPLE):
            chosen = ""
        shown = ", ".join(_code(each) for each in default.split(", "))
        lines.append(f"| `{name}` | {shown} | {_code(chosen)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _code(value: str) -> str:
    return f"`{value}`" if value else ""
