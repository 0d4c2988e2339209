"""The timer through the whole app: it purges, counts, and tells; retention is checked at the start."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.data.tables.aio import TableClient

from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from local.services.telemetry_sink import TelemetrySink
from shared.idempotency import Record, Status
from shared.idempotency.stores.table import TableStore
from shared.idempotency.testing import a_record
from tests.integration.conftest import running_app
from tests.integration.messages import eventually

pytestmark = pytest.mark.integration

OVER: dict[str, Any] = {"status": Status.COMPLETED, "finished_at": 160.0, "expires_at": 100.0}


def run_now(http: httpx.Client) -> None:
    """Run the timer out of turn, as one does at the host's administrative address."""
    address = http.base_url.join("/admin/functions/purge_expired")
    assert http.post(address, json={}).status_code == 202


def test_what_expired_is_purged_and_what_the_timer_did_is_told(azurite: Azurite) -> None:
    over, kept = a_record("over", **OVER), a_record("kept")

    async def there(*put: Record) -> set[str]:
        async with TableClient.from_connection_string(
            azurite.connection_string, "recordsupkeep"
        ) as table:
            store = TableStore(table)
            for record in put:
                assert await store.insert(record)
            found = [await store.read("contract", key) for key in ("over", "kept")]
        return {each.record.key for each in found if each}

    asyncio.run(there(over, kept))
    with TelemetrySink() as sink:
        settings: dict[str, Any] = sink.environment(export_seconds=60.0)
        with running_app(azurite, RECORDS_CONTAINER="recordsupkeep", **settings) as app:
            run_now(app.http)
            eventually(lambda: "survey: done" in app.host.output, what="the run")
            assert asyncio.run(there()) == {"kept"}

    total = sink.total
    assert total("idempotency.upkeep.runs", job="purge", result="done") == 1
    assert total("idempotency.upkeep.items", job="purge") == 1
    assert total("idempotency.upkeep.runs", job="survey", result="done") == 1


def test_on_cosmos_no_purge_is_needed_and_that_is_told(
    azurite: Azurite, cosmos: CosmosServer
) -> None:
    with running_app(azurite, cosmos) as app:
        run_now(app.http)
        eventually(lambda: "survey: done" in app.host.output, what="the run")

        assert "purge: not_needed" in app.host.output


def test_a_retention_that_is_too_short_is_complained_of_when_the_app_starts(
    azurite: Azurite, tmp_path: Path
) -> None:
    queue = {"Name": "orders", "Properties": {"DefaultMessageTimeToLive": "P20D"}}
    file = tmp_path / "entities.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Queues": [queue]}]}}))

    with running_app(azurite, SERVICEBUS_ENTITY_FILE=str(file)) as app:
        assert "orders: records are kept for 720 h" in app.host.output
        assert "96.1667 h too short" in app.host.output

    with running_app(
        azurite, IDEMPOTENCY_RETENTION_DAYS="40", SERVICEBUS_ENTITY_FILE=str(file)
    ) as app:
        assert "too short" not in app.host.output
