"""Every function that changes something, rehearsed: its effects happen once, whatever goes wrong."""

import functools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from blueprints.fulfilment import fulfil_in_unit
from blueprints.orders import place_order
from blueprints.webhooks import take_payment_event
from shared.audit import audit
from shared.idempotency import (
    Consumer,
    Delivery,
    Effects,
    Inbox,
    Outbox,
    Reconcile,
    Rerun,
    ResultCodec,
    State,
    VersionGuard,
    apply_if_newer,
)
from shared.idempotency.clock import Clock
from shared.idempotency.entities import EntityStates
from shared.idempotency.inbox_store import Operation
from shared.idempotency.rehearsal import Process, Report, rehearse
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.triggers.cloud_event import CloudEvent
from shared.import_messages import ImportMessage, Progress
from shared.imports import Importer
from shared.inventory import StockLevel
from shared.loyalty import credit, key_of, partition_of
from shared.mail import KEYS_KNOWN_FOR, Mail, MailProvider, confirm_order
from shared.order_events import ORDER_PLACED, OrderEvent
from shared.order_status import status_of
from shared.orders import SubmittedOrder, parsed
from shared.paid_orders import Payment
from shared.payments import PaymentProvider, Receipt, Settled, charge_order
from shared.settlement import DaySettled, settle_day
from shared.timelines import with_event
from tests.triggers.webhook_sender import a_secret
from tests.unit.imports import MemoryBlobs, an_order, jsonl

type Work = Callable[[], Awaitable[Any]]

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERY = Delivery(key="o-1", fingerprint="f")
NOTHING: ResultCodec[None] = ResultCodec(type(None))
ORDER = {
    "order_id": "o-1",
    "customer_id": "c-1",
    "currency": "EUR",
    "lines": [{"sku": "tea", "quantity": 2, "unit_price": "6.25"}],
}
BODY = json.dumps(ORDER).encode()
PLACED = OrderEvent(
    id="e-1",
    source="orders",
    type=ORDER_PLACED,
    subject="o-1",
    time=NOW,
    version=1,
    data={"customer_id": "c-1", "currency": "EUR", "total": "12.50"},
)


type Documents = Mapping[tuple[str, str], Mapping[str, Any]]


class Levels(MemoryStateStore):
    """Guarded states that count what was written."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.changes = 0

    def _write(self, id_: str, document: Any) -> None:
        self.changes += 1
        super()._write(id_, document)


class Orders(MemoryInbox):
    """Orders that were placed before; changes of their entities are counted from then on."""

    def __init__(self, placed: Documents, clock: Clock) -> None:
        super().__init__(clock)
        self.changes = 0
        for (partition, id_), document in placed.items():
            placing = self.commit(partition, (Operation(kind="create", id=id_, document=document),))
            with pytest.raises(StopIteration):  # in memory nothing is waited for
                placing.send(None)
        self.changes = 0

    def _do(self, address: tuple[str, str], operation: Operation) -> None:
        self.changes += address == ("o-1", "o-1")
        super()._do(address, operation)


class Shop:
    """Orders, the records beside them, and the queue `fulfilment`, which knows its messages' ids."""

    def __init__(self, placed: Documents, clock: Clock) -> None:
        self.orders = Orders(placed, clock)
        self.records = MemoryStore(clock)
        self.sent: set[str] = set()

    async def send(self, order_id: str) -> None:
        self.sent.add(order_id)


async def place() -> None:
    place_order(BODY, None)


@pytest.fixture
async def placed() -> Documents:
    """The documents of an order that was placed."""
    orders = MemoryInbox()
    inbox = Inbox("process_order", orders, entity_is_marker=True)
    await inbox.handle(DELIVERY, place, NOTHING)
    return orders.documents()


def entries(kind: str) -> Callable[[MemoryInbox], dict[str, int]]:
    """Counts the lines that a journal has of an effect."""
    return lambda store: {kind: sum(id_.startswith(f"{kind}-") for _, id_ in store.documents())}


async def process_order(placed: Documents) -> Report:
    return await rehearse(
        lambda process: Inbox(
            "process_order", process.store, entity_is_marker=True, clock=process.clock
        ),
        lambda process: place,
        DELIVERY,
        effects=["placed"],
        count=entries("placed"),
        store=MemoryInbox,
        crashes=2,
    )


async def submit_order(placed: Documents) -> Report:
    """Sent again after a crash it is the same message: the order's id is derived from the request."""
    submitted = parsed(BODY, SubmittedOrder)

    def handler(process: Process) -> Work:
        send = process.through(process.store.shop).send
        return lambda: send(submitted.named("caller", "key").order_id)

    class Records(MemoryStore):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.shop = Shop({}, clock)

    return await rehearse(
        lambda process: Consumer("submit_order", process.store, clock=process.clock),
        handler,
        DELIVERY,
        effects=["sent"],
        count=lambda records: {"sent": len(records.shop.sent)},
        store=Records,
        crashes=2,
    )


async def charge_payment(placed: Documents) -> Report:
    receipt = Receipt(charge_id="ch_1", amount=Decimal("12.50"), currency="EUR")

    class Provider:
        """Stands in for the provider: its one call is an effect of the rehearsal."""

        timeout = 10.0

        def __init__(self, process: Process) -> None:
            self.charge = process.effect("charge", receipt)

    return await rehearse(
        lambda process: Consumer(
            "charge_payment",
            process.store,
            effects=Effects(policy=Reconcile(process.ask)),
            clock=process.clock,
        ),
        lambda process: lambda: charge_order(PLACED, cast("PaymentProvider", Provider(process))),
        DELIVERY,
        effects=["charge"],
        codec=ResultCodec(Receipt | None),
        crashes=2,
    )


async def daily_settlement(placed: Documents) -> Report:
    class Paid:
        async def on(self, day: date) -> AsyncIterator[Payment]:
            yield Payment(currency="EUR", total=Decimal(12))
            yield Payment(currency="USD", total=Decimal(7))

    class Provider:
        """Stands in for the provider: each settlement is an effect, named as its step."""

        timeout = 10.0

        def __init__(self, process: Process) -> None:
            self._process = process

        async def settle(self, reference: str, *_amounts: object) -> Settled:
            currency = reference.partition("/")[2]
            step = f"settle-{currency}" if currency else "close"
            answer = self._process.effect(step, Settled(settlement_id=step))
            settled: Settled = await answer()
            return settled

    return await rehearse(
        lambda process: Consumer(
            "daily_settlement",
            process.store,
            effects=Effects(policy=Reconcile(process.ask)),
            clock=process.clock,
        ),
        lambda process: (
            lambda: settle_day(NOW.date(), Paid(), cast("PaymentProvider", Provider(process)))
        ),
        DELIVERY,
        effects=["settle-EUR", "settle-USD", "close"],
        codec=ResultCodec(DaySettled),
    )


async def import_orders(placed: Documents) -> Report:
    asked = ImportMessage(blob="orders.jsonl", etag="0x1")
    content = jsonl(an_order("o-1"), "no order", an_order("o-2"))

    class Stores(MemoryInbox):
        """Orders, with the records of imports, the blobs and the next slices beside them."""

        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.records = MemoryStore(clock)
            self.blobs = MemoryBlobs()
            self.blobs.put(asked.blob, content)

    def counted(stores: Stores) -> dict[str, int]:
        placed = [of for of, id_ in stores.documents() if id_.startswith("placed-")]
        return {**Counter(placed), "set aside": len(stores.blobs.errors())}

    def handler(process: Process) -> Work:
        stores = process.store
        orders = Inbox("process_order", stores, entity_is_marker=True, clock=process.clock)
        importer = Importer(
            process.through(stores.blobs),
            orders,
            lambda body: place_order(body, None),
            process.effect("next slice"),
            slice_seconds=60.0,
            chunk_seconds=20.0,
            chunk_rows=2,
        )
        return lambda: importer.handle(asked)

    return await rehearse(
        lambda process: Consumer(
            "import_orders",
            process.through(process.store.records),
            effects=Effects(policy=Rerun(provider_key_retention=math.inf), settle=20.0),
            clock=process.clock,
        ),
        handler,
        DELIVERY,
        effects=["o-1", "o-2", "set aside"],
        count=counted,
        store=Stores,
        codec=ResultCodec(Progress),
    )


async def email_confirmation(placed: Documents) -> Report:
    class Provider:
        """Stands in for the provider: its one call is an effect of the rehearsal."""

        timeout = 10.0

        def __init__(self, process: Process) -> None:
            self.send = process.effect("mail", Mail(mail_id="m-1"))

    return await rehearse(
        lambda process: Consumer(
            "email_confirmation",
            process.store,
            effects=Effects(policy=Rerun(provider_key_retention=KEYS_KNOWN_FOR)),
            clock=process.clock,
        ),
        lambda process: lambda: confirm_order(PLACED, cast("MailProvider", Provider(process))),
        DELIVERY,
        effects=["mail"],
        codec=ResultCodec(Mail | None),
        honours_keys=True,
        crashes=2,
    )


async def loyalty_points(placed: Documents) -> Report:
    body = PLACED.encoded()
    return await rehearse(
        lambda process: Inbox(
            "loyalty_points", process.store, partition=partition_of, clock=process.clock
        ),
        lambda process: lambda: credit(body),
        Delivery(key=key_of(body), fingerprint="f"),
        effects=["credited"],
        count=entries("credited"),
        store=MemoryInbox,
        crashes=2,
    )


async def audit_orders(placed: Documents) -> Report:
    async def work() -> None:
        audit(PLACED.encoded())

    return await rehearse(
        lambda process: Inbox(
            "audit_orders", process.store, entity_is_marker=True, clock=process.clock
        ),
        lambda process: work,
        DELIVERY,
        effects=["audited"],
        count=entries("audited"),
        store=MemoryInbox,
        crashes=2,
    )


async def payment_webhook(placed: Documents) -> Report:
    charge = {"charge_id": "ch-1", "reference": "o-1", "amount": "12.50", "currency": "EUR"}
    event = {"type": "charge.succeeded", "timestamp": NOW.isoformat()}
    body = json.dumps({**event, "data": {**charge, "version": 1}}).encode()

    def handler(process: Process) -> Work:
        shop = process.store
        states = EntityStates(process.through(shop.orders))
        guard = VersionGuard("order_payment", states, clock=process.clock)
        return lambda: take_payment_event(body, guard, shop.send)

    return await rehearse(
        lambda process: Consumer(
            "payment_webhook", process.through(process.store.records), clock=process.clock
        ),
        handler,
        DELIVERY,
        effects=["paid", "fulfilment asked for"],
        count=lambda shop: {"paid": shop.orders.changes, "fulfilment asked for": len(shop.sent)},
        store=functools.partial(Shop, placed),
        crashes=2,
    )


async def fulfil_order(placed: Documents) -> Report:
    body = b'{"order_id": "o-1", "warehouse": "HAM-1"}'
    return await rehearse(
        lambda process: Inbox(
            "fulfil_order",
            process.store,
            outbox=Outbox(process.store, process.effect("told"), clock=process.clock),
            clock=process.clock,
        ),
        lambda process: lambda: fulfil_in_unit(body, "order-events"),
        DELIVERY,
        effects=["fulfilled"],
        count=entries("fulfilled"),
        store=functools.partial(Orders, placed),
    )


async def stock_level_changed(placed: Documents) -> Report:
    level = StockLevel(sku="tea", warehouse="HAM-1", level=7, version=3)
    return await guarded(lambda store: store, level.state(), Levels)


async def order_timeline(placed: Documents) -> Report:
    return await guarded(lambda store: store, with_event(PLACED), Levels)


async def order_status_changed(placed: Documents) -> Report:
    event = CloudEvent(
        id="e-1",
        source="shipper",
        type="OrderStatusChanged",
        subject="o-1",
        data=b'{"status": "shipped", "version": 1}',
    )
    return await guarded(EntityStates, status_of(event), functools.partial(Orders, placed))


async def guarded(states: Any, state: State, store: Callable[[Clock], Any]) -> Report:
    """A version guard's function: one write, whatever goes wrong."""

    async def work() -> None:
        apply_if_newer(state)

    return await rehearse(
        lambda process: VersionGuard("guard", states(process.store), clock=process.clock),
        lambda process: work,
        DELIVERY,
        effects=["change"],
        count=lambda kept: {"change": kept.changes},
        store=store,
        crashes=2,
    )


REHEARSED: dict[str, Callable[[Documents], Awaitable[Report]]] = {
    "process_order": process_order,
    "submit_order": submit_order,
    "charge_payment": charge_payment,
    "email_confirmation": email_confirmation,
    "loyalty_points": loyalty_points,
    "audit_orders": audit_orders,
    "daily_settlement": daily_settlement,
    "import_orders": import_orders,
    "payment_webhook": payment_webhook,
    "fulfil_order": fulfil_order,
    "stock_level_changed": stock_level_changed,
    "order_timeline": order_timeline,
    "order_status_changed": order_status_changed,
}
THE_SAME_HANDLER = {
    "process_order_from_storage_queue": "process_order",
    "order_status_changed_from_event_grid": "order_status_changed",
    "ingest_order_events": "order_timeline",
    "ingest_order_events_from_kafka": "order_timeline",
    "ingest_order_events_from_rabbitmq": "order_timeline",
}
UPKEEP = {"purge_expired", "sweep_outbox"}
"""They have no effect of their own: tests/contract has what they may delete and send."""


@pytest.mark.parametrize("function", REHEARSED)
async def test_its_effects_happen_once_whatever_goes_wrong(
    function: str, placed: Documents
) -> None:
    report = await REHEARSED[function](placed)
    assert report.ok, report
    assert report.quarantined == ()
    assert report.plays > 5


def test_no_function_that_changes_something_is_left_out() -> None:
    settings = {
        "AzureWebJobsStorage": "UseDevelopmentStorage=true",
        "ServiceBusConnection": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b",
        "PAYMENT_WEBHOOK_SECRETS": a_secret(),
        "PAYMENT_PROVIDER_URL": "https://provider.example",
        "MAIL_PROVIDER_URL": "https://mails.example",
        "EventHubConnection": "Endpoint=sb://localhost",
        "KAFKA_BROKERS": "localhost:9092",
        "RabbitMQConnection": "amqp://localhost",
        "APPLICATIONINSIGHTS_CONNECTION_STRING": "",
    }
    run = subprocess.run(  # noqa: S603 - this repository's own program
        [sys.executable, "-c", CHANGING],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        check=True,
        text=True,
    )
    assert set(json.loads(run.stdout)) == REHEARSED.keys() | THE_SAME_HANDLER.keys() | UPKEEP


# The functions of an app can be asked for once only: hence a process of its own.
CHANGING = """
import json
import function_app
def reads_only(function):
    [trigger] = [b for b in json.loads(str(function))["bindings"] if "trigger" in b["type"].lower()]
    return trigger.get("methods") == ["GET"]
functions = function_app.app.get_functions()
print(json.dumps([f.get_function_name() for f in functions if not reads_only(f)]))
"""
