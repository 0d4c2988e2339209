"""Every command of the runbook does what it says, against the local parts, in the order it is told."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables.aio import TableServiceClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.deployment.infra import ROOT
from local.servicebus import Broker, Entities
from local.services.azurite import Azurite
from shared.idempotency import Status
from shared.idempotency.documents import RESERVED, to_document
from shared.idempotency.records import Step
from shared.idempotency.stores import table_access
from shared.idempotency.stores.table import TableStore
from shared.idempotency.testing import a_record
from tests.operator.bench import Ended, Operator

pytestmark = pytest.mark.integration

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
COMMAND = "python -m shared.idempotency"
BODY = b'{"order_id": "o"}'


def commands(fence: str) -> list[str]:
    """The lines of all blocks with that fence."""
    blocks = re.findall(rf"^```{fence}\n(.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """What came of each command, on a day on which there is something of everything."""
    entities = Entities.load(ROOT / "local" / "entities.json")
    with Azurite() as azurite, Broker(entities, host="127.0.0.1", port=0) as broker:
        operator = Operator(
            tmp_path_factory.mktemp("runbook"),
            azurite,
            broker=broker,
            catalogue=ROOT / "pyproject.toml",
        )
        asyncio.run(records(azurite))
        messages(operator, broker)
        yield {
            line: operator(*shlex.split(line.removeprefix(COMMAND)), answer="y\n")
            for line in commands("sh")
        }


async def records(azurite: Azurite) -> None:
    charge = {"consumer": "charge_payment"}
    open_step = Step(name="charge", begun_at=1.0, deadline=2.0)
    over: dict[str, Any] = {"status": Status.COMPLETED, "finished_at": 160.0, "expires_at": 100.0}
    async with TableServiceClient.from_connection_string(azurite.connection_string) as service:
        store = TableStore(service.get_table_client("idempotency"))
        for record in (
            a_record("o-1002", status=Status.QUARANTINED, steps=(open_step,)).replaced(**charge),
            a_record("o-1003", status=Status.QUARANTINED, steps=(open_step,)).replaced(**charge),
            a_record("o-1004", status=Status.UNCERTAIN, steps=(open_step,)).replaced(**charge),
            a_record("o-1005", **over).replaced(**charge),
            a_record("2026-03-01", status=Status.FAILED).replaced(consumer="daily_settlement"),
        ):
            assert await store.insert(record)
        orders = service.get_table_client("orders")
        await orders.create_table()
        marker = a_record("o-1001", status=Status.COMPLETED).replaced(consumer="process_order")
        document = to_document(marker, prefix=RESERVED)
        await orders.create_entity(table_access.to_entity("o-1001", "o-1001", document))


def messages(operator: Operator, broker: Broker) -> None:
    def a(key: str) -> ServiceBusMessage:
        return ServiceBusMessage(BODY, message_id=key, session_id=key)  # as order events have one

    operator.dead_letter(a("o-1001"), reason="PayloadMismatch")
    operator.dead_letter(a("o-2001"), reason="MaxDeliveryCountExceeded")
    operator.dead_letter(a("o-2002"), reason="TooOld")
    operator.dead_letter(a("o-1004"), reason="CardDeclined", queue="order-events/payments")
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("quarantine") as sender,
    ):
        sender.send_messages(a("o-3001"))


def test_every_command_works(ran: dict[str, Ended]) -> None:
    assert len(ran) >= 18
    for line, ended in ran.items():
        assert line.startswith(COMMAND), line
        assert ended.code == 0, (line, ended.err)


def one(ran: dict[str, Ended], *words: str) -> Ended:
    [ended] = [each for line, each in ran.items() if all(word in line for word in words)]
    return ended


def test_the_commands_say_what_the_runbook_says_they_do(ran: dict[str, Ended]) -> None:
    assert "o-1001" in one(ran, "list", "--consumer process_order").out
    assert "PayloadMismatch" in one(ran, "--reason PayloadMismatch", "--dry-run").out
    assert "o-1002" in one(ran, "list", "--status quarantined").out
    assert "ch_1" in one(ran, "complete").out
    assert "completed" in one(ran, "complete").out
    assert "released" in one(ran, "release", "o-1003").out
    assert "2026-03-01" in one(ran, "list", "daily_settlement").out
    assert "released" in one(ran, "release", "daily_settlement").out
    assert "re-sent: 1" in one(ran, "release", "o-1004").out
    assert "deleted 1" in one(ran, "purge").out
    assert "re-sent" in one(ran, "MaxDeliveryCountExceeded").out
    assert "re-sent" in one(ran, "TooOld").out
    assert "re-sent" in one(ran, "--quarantine-queue").out
    assert "records are kept for 30 d" in one(ran, "check").out


def test_what_the_runbook_does_not_run_is_azure_s_alone() -> None:
    fences = set(re.findall(r"^```(\w.*)$", RUNBOOK, re.MULTILINE))

    assert fences == {"sh", "sh azure", "kusto"}
    for line in commands("sh azure"):
        assert line.startswith(("az ", "set -a", "curl ", f"{COMMAND} --namespace")), line


def test_every_property_the_runbook_queries_is_logged() -> None:
    source = (ROOT / "shared/idempotency/telemetry.py").read_text()
    [query] = re.findall(r"^```kusto\n(.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL)

    for name in re.findall(r"customDimensions\.(\w+)", query):
        assert f'"{name}"' in source or f"{name}=" in source, name


def test_the_days_it_names_are_those_that_are_deployed(tmp_path: Path) -> None:
    app = (ROOT / "infra/app.bicep").read_text()

    assert "IDEMPOTENCY_DEAD_LETTER_DAYS: '14'" in app
    assert "`IDEMPOTENCY_DEAD_LETTER_DAYS` (14)" in RUNBOOK
    assert "IDEMPOTENCY_RETENTION_DAYS: '30'" in app
