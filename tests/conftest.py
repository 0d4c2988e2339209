"""The services that integration tests talk to.

A part that is not installed skips its tests on a person's machine and fails them in CI.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from local.services.node import INSTALL, MODULES

if TYPE_CHECKING:
    from local.servicebus import Broker
    from local.services.telemetry_sink import TelemetrySink

# How long an example takes tells about the machine, not about the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

ENTITIES = Path(__file__).parents[1] / "local" / "entities.json"


def _require_node_modules() -> None:
    if MODULES.is_dir():
        return
    reason = f"the emulators are not installed: run `{INSTALL}`"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Storage in memory, one for the whole run: tests use table and queue names of their own."""
    _require_node_modules()
    with Azurite() as running:
        yield running


@pytest.fixture(scope="session")
def cosmos() -> Iterator[CosmosServer]:
    """A Cosmos account, one for the whole run: tests use database names of their own."""
    _require_node_modules()
    with CosmosServer() as running:
        yield running


@pytest.fixture(scope="session")
def telemetry_sink() -> Iterator["TelemetrySink"]:
    """What the Azure Monitor exporter posts to, one for the whole run."""
    from local.services.telemetry_sink import TelemetrySink

    with TelemetrySink() as running:
        yield running


@pytest.fixture
def broker() -> Iterator["Broker"]:
    """Service Bus with the entities of local/entities.json, empty for each test."""
    from local.servicebus import Broker, Entities

    with Broker(Entities.load(ENTITIES), host="127.0.0.1", port=0) as running:
        yield running
