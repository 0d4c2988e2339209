"""Files of orders through the whole app: blob, queue, host, worker, stores; and processes that die."""

import asyncio
import functools
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from azure.data.tables import TableClient
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient

from local.host.process import HostProcess
from local.import_file import send, upload
from local.services.azurite import Azurite
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from shared.rows import PIECE
from tests.integration.conftest import ROOT, RunningApp, running_app
from tests.integration.messages import eventually
from tests.unit.imports import an_order, jsonl

pytestmark = pytest.mark.integration
PATIENCE = 240.0
QUICK = {
    # a killed host's message comes back after so many seconds, and its record is taken over
    "LOCAL_HOST_HIDE": "4",
    "IDEMPOTENCY_LEASE_SECONDS": "15",
    "IDEMPOTENCY_HEARTBEAT_SECONDS": "5",
    "IDEMPOTENCY_WAIT_SECONDS": "35",
    "PAYMENT_TIMEOUT_SECONDS": "3",
    "PAYMENT_SETTLE_SECONDS": "3",
    "ServiceBusConnection": "",
}


class Imports:
    """The running app's imports, and the orders that came of them."""

    def __init__(self, app: RunningApp) -> None:
        self.app = app
        self._storage = app.environment["AzureWebJobsStorage"]
        self._container = app.environment["IMPORTS_CONTAINER"]
        self._queue = app.environment["IMPORTS_STORAGE_QUEUE"]

    def upload(self, name: str, content: bytes) -> str:
        return upload(self._storage, self._container, name, content)

    def ask(self, **message: str) -> None:
        send(self._storage, self._queue, message)

    def errors(self, name: str) -> list[dict[str, Any]] | None:
        """The bad rows of a file; None when there is no such blob."""
        with ContainerClient.from_connection_string(self._storage, self._container) as container:
            try:
                written = container.download_blob(f"{name}.errors.jsonl").readall()
            except ResourceNotFoundError:
                return None
        return [json.loads(line) for line in written.splitlines()]

    def poison(self) -> list[dict[str, Any]]:
        with QueueClient.from_connection_string(self._storage, f"{self._queue}-poison") as queue:
            try:
                return [json.loads(m.content) for m in queue.peek_messages(max_messages=32)]
            except ResourceNotFoundError:
                return []

    def effects(self, *, of: str = "") -> list[str]:
        """The orders that were placed, once for each time that they were."""
        if self.app.environment["IDEMPOTENCY_STORE"] == "cosmos":
            placed = asyncio.run(self._in_cosmos())
            return [order for order in placed if order.startswith(of)]
        with TableClient.from_connection_string(
            self._storage, self.app.environment["ORDERS_CONTAINER"]
        ) as table:
            journal = table.query_entities("effect eq 'placed'", select=["order_id"])
            try:
                return [e["order_id"] for e in journal if e["order_id"].startswith(of)]
            except ResourceNotFoundError:
                return []  # nobody has ordered yet

    async def _in_cosmos(self) -> list[str]:
        async with CosmosClient.from_connection_string(
            self.app.environment["COSMOS_CONNECTION"], **CLIENT_OPTIONS
        ) as client:
            database = client.get_database_client(self.app.environment["COSMOS_DATABASE"])
            container = database.get_container_client(self.app.environment["ORDERS_CONTAINER"])
            items = container.query_items("SELECT c.order_id FROM c WHERE c.effect = 'placed'")
            try:
                return [str(item["order_id"]) async for item in items]
            except CosmosResourceNotFoundError:
                return []  # nobody has ordered yet


def ended(host: HostProcess, name: str, tally: str) -> None:
    """Wait until an import has told of that many rows."""
    words = f"import of {name}: {tally}"
    eventually(lambda: words in host.output, within=PATIENCE, what=words)


def slices(host: HostProcess, outcome: str) -> int:
    return len(re.findall(rf"import_orders '.*': {outcome}", host.output))


@pytest.fixture(scope="module", params=["table", pytest.param("cosmos", marks=pytest.mark.slow)])
def imports(request: pytest.FixtureRequest) -> Iterator[Imports]:
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    with running_app(azurite, cosmos, IMPORT_SLICE_SECONDS="0.001") as app:
        yield Imports(app)


def test_given_a_file_in_csv_when_it_is_imported_twice_then_each_order_is_placed_once(
    imports: Imports,
) -> None:
    host, of = imports.app.host, f"csv-{uuid.uuid4().hex[:8]}"
    # more than is looked at in one go, in pieces that end within rows
    rows = [f"{of}-{n},c-1,EUR,tea,2,4.90,{'x' * (2600 + n % 7)}" for n in range(90)]
    rows[7] = rows[7].replace("EUR", "euro")
    header = "order_id,customer_id,currency,sku,quantity,unit_price,note"
    assert len("".join(rows)) > 3 * PIECE
    name = f"{of}.csv"
    imports.upload(name, "\r\n".join([header, *rows, rows[0], ""]).encode())

    imports.ask(blob=name)
    ended(host, name, "91 rows: 89 placed, 1 duplicates, 1 set aside")
    [bad] = eventually(lambda: imports.errors(name), what="the bad row is beside the file")
    imports.ask(blob=name)
    imports.ask(blob=name, run="2")
    ended(host, name, "91 rows: 0 placed, 90 duplicates, 1 set aside")

    assert (bad["line"], bad["reason"], bad["row"]) == (9, "SchemaViolation", rows[7])
    assert imports.errors(name) == [bad]
    placed = imports.effects(of=of)
    assert len(placed) == len(set(placed)) == 89
    assert imports.poison() == []
    order = imports.app.http.get(f"/orders/{of}-3").json()
    assert (order["total"], order["status"]) == ("9.80", "placed")


def test_given_an_order_that_came_over_http_then_its_row_is_a_duplicate(imports: Imports) -> None:
    of = f"http-{uuid.uuid4().hex[:8]}"
    body = an_order(of)
    answer = imports.app.http.post("/orders", json=body, headers={"Idempotency-Key": of})
    assert answer.status_code == 202
    eventually(lambda: imports.effects(of=of), what="the order is placed")
    name = f"{of}.jsonl"
    etag = imports.upload(name, jsonl(body))

    imports.ask(blob=name, etag=etag)

    ended(imports.app.host, name, "1 rows: 0 placed, 1 duplicates, 0 set aside")


def test_given_a_blob_that_was_written_since_then_its_message_is_poison_and_says_why(
    imports: Imports,
) -> None:
    name = f"changed-{uuid.uuid4().hex[:8]}.jsonl"
    etag = imports.upload(name, jsonl(an_order(f"{name}-1")))
    imports.upload(name, jsonl(an_order(f"{name}-2")))

    imports.ask(blob=name, etag=etag)

    def poison() -> dict[str, Any] | None:
        return next((each for each in imports.poison() if name in each["text"]), None)

    assert eventually(poison, what="a poison message")["reason"] == "BlobChanged"
    assert imports.effects(of=name) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"blob": "missing.csv"}, "BlobNotFound"),
        ({"blob": "orders.xlsx"}, "UnknownFormat"),
        ({"file": "orders.csv"}, "SchemaViolation"),
        ({"blob": "a" * 1024 + ".csv", "etag": "x"}, "SchemaViolation"),
    ],
)
def test_given_a_message_that_nothing_can_be_done_with_then_it_is_poison_and_says_why(
    imports: Imports, message: dict[str, str], reason: str
) -> None:
    imports.upload("there.csv", b"")  # the container
    imports.ask(**message)

    def poison() -> dict[str, Any] | None:
        sent = json.dumps(message)
        return next((each for each in imports.poison() if each["text"] == sent), None)

    assert eventually(poison, what="a poison message")["reason"] == reason


def further(host: HostProcess, seen: int) -> int | None:
    """How many rows an import has told of, when they are more than ``seen``."""
    told = [int(n) for n in re.findall(r"import of \S+: (\d+) rows", host.output)]
    return max(told) if told and max(told) > seen else None


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_given_a_process_that_is_killed_at_several_points_then_the_import_goes_on_and_ends_the_same(
    azurite: Azurite,
) -> None:
    rows = 2000
    orders = [an_order(f"o-{n}") for n in range(rows)]
    lines: list[dict[str, Any] | str] = [*orders]
    lines[777] = "no order"
    lines[1500] = an_order("o-3", currency="USD")
    with running_app(azurite, IMPORT_SLICE_SECONDS="20", **QUICK) as app:
        imports = Imports(app)
        imports.ask(blob="orders.jsonl", etag=imports.upload("orders.jsonl", jsonl(*lines)))
        host, seen = app.host, 0
        for _ in range(3):
            seen = eventually(
                functools.partial(further, host, seen), within=PATIENCE, what="a chunk more"
            )
            host.kill()
            host = HostProcess(ROOT, environment=app.environment).__enter__()
        try:
            ended(host, "orders.jsonl", f"{rows} rows:")
            bad = eventually(lambda: imports.errors("orders.jsonl"), what="the bad rows")
        finally:
            host.stop()

        placed = imports.effects()
        assert len(placed) == len(set(placed)) == rows - 2
        assert [(each["line"], each["reason"]) for each in bad] == [
            (778, "MalformedJson"),
            (1501, "PayloadMismatch"),
        ]
        assert "in flight" not in host.output
