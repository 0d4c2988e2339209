"""What orders tell through the outbox, through the whole app: placed, fulfilled, swept."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from azure.cosmos.aio import CosmosClient
from azure.data.tables.aio import TableClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.servicebus import Snapshot
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from shared.idempotency import Message, OutboxStore
from shared.idempotency.outbox import Parcel
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_inbox import CosmosInbox
from shared.idempotency.stores.table_inbox import TableInbox
from shared.order_events import OrderEvent
from tests.integration.conftest import RunningApp
from tests.integration.messages import body_of, dead_letter, eventually, order, storage_queue

pytestmark = pytest.mark.integration
EMAIL = "order-events/subscriptions/email"


def events(app: RunningApp, order_id: str) -> list[tuple[Snapshot, OrderEvent]]:
    """What the topic's subscribers got about an order."""
    found = ((m, msgspec.json.decode(m.body, type=OrderEvent)) for m in app.broker.messages(EMAIL))
    return [(message, event) for message, event in found if event.subject == order_id]


def kinds(app: RunningApp, order_id: str) -> list[str]:
    return [event.type for _, event in events(app, order_id)]


def place(app: RunningApp, content: dict[str, Any], **properties: Any) -> None:
    properties.setdefault("message_id", content["order_id"])
    app.send(ServiceBusMessage(body_of(content), **properties))


def placed(app: RunningApp, **changes: Any) -> str:
    """The id of an order that was placed and told of."""
    content = order(**changes)
    place(app, content)
    order_id: str = content["order_id"]
    eventually(lambda: kinds(app, order_id) == ["OrderPlaced"], what="OrderPlaced")
    return order_id


def request_fulfilment(app: RunningApp, order_id: str, **message: Any) -> None:
    body = {"order_id": order_id, "warehouse": message.pop("warehouse", "HAM-1")}
    message.setdefault("message_id", order_id)
    with (
        ServiceBusClient.from_connection_string(app.broker.connection_string) as bus,
        bus.get_queue_sender("fulfilment") as sender,
    ):
        sender.send_messages(ServiceBusMessage(body_of(body), **message))


def kept(app: RunningApp, order_id: str) -> dict[str, Any]:
    document: dict[str, Any] = app.http.get(f"/orders/{order_id}").json()
    return document


def handled(app: RunningApp, consumer: str, order_id: str, outcome: str) -> int:
    told = f"{consumer} '{order_id}': {outcome}"
    return sum(told in line for line in app.host.output.splitlines())


def test_given_an_order_when_it_is_placed_then_one_event_tells_of_it(app: RunningApp) -> None:
    order_id = placed(app)

    [(message, event)] = events(app, order_id)
    assert (event.version, event.data["total"]) == (1, "9.80")
    assert message.message_id is not None
    assert len(message.message_id) == 64
    assert message.application_properties["event-type"] == "OrderPlaced"
    assert "Resend-Count" not in message.application_properties
    assert message.application_properties["Outbox-Ordinal"] == 1
    assert message.application_properties["First-Enqueued-Time"]


def test_given_an_order_when_it_comes_again_then_nothing_more_is_told(app: RunningApp) -> None:
    content = order()
    place(app, content)
    again = {"Deduplication-Key": content["order_id"]}
    place(app, content, message_id=uuid.uuid4().hex, application_properties=again)
    with storage_queue(app.azurite.connection_string, app.storage_queue) as queue:
        queue.send_message(body_of(content).decode())

    eventually(
        lambda: handled(app, "process_order", content["order_id"], "duplicate") == 2,
        what="two duplicates",
    )
    assert kinds(app, content["order_id"]) == ["OrderPlaced"]


def test_given_an_order_from_the_storage_queue_when_it_is_placed_then_it_is_told_of_too(
    app: RunningApp,
) -> None:
    content = order()
    with storage_queue(app.azurite.connection_string, app.storage_queue) as queue:
        queue.send_message(body_of(content).decode())

    eventually(lambda: kinds(app, content["order_id"]) == ["OrderPlaced"], what="OrderPlaced")


def test_given_a_placed_order_when_it_is_fulfilled_then_order_event_and_timeline_say_so(
    app: RunningApp,
) -> None:
    order_id = placed(app)

    request_fulfilment(app, order_id)

    eventually(
        lambda: kinds(app, order_id) == ["OrderPlaced", "OrderFulfilled"], what="OrderFulfilled"
    )
    document = kept(app, order_id)
    assert (document["fulfilment_status"], document["version"]) == ("fulfilled", 2)
    assert (document["warehouse"], document["total"]) == ("HAM-1", "9.80")
    timeline = eventually(
        lambda: _timeline(app, order_id, of=2), what="a timeline with both events"
    )
    assert [entry["type"] for entry in timeline["entries"]] == ["OrderPlaced", "OrderFulfilled"]


def _timeline(app: RunningApp, order_id: str, *, of: int) -> dict[str, Any] | None:
    answer = app.http.get(f"/orders/{order_id}/timeline")
    timeline: dict[str, Any] = answer.json()
    return timeline if answer.is_success and len(timeline["entries"]) == of else None


def test_given_a_fulfilled_order_when_the_message_or_the_order_comes_again_then_nothing_changes(
    app: RunningApp,
) -> None:
    content = order()
    order_id = placed(app, order_id=content["order_id"])
    request_fulfilment(app, order_id)
    eventually(lambda: len(kinds(app, order_id)) == 2, what="OrderFulfilled")
    document = kept(app, order_id)

    again = {"Deduplication-Key": order_id}
    request_fulfilment(app, order_id, message_id="again", application_properties=again)
    place(app, content, message_id=uuid.uuid4().hex, application_properties=again)

    for consumer in ("fulfil_order", "process_order"):
        eventually(
            lambda c=consumer: handled(app, c, order_id, "duplicate") == 1,  # type: ignore[misc]
            what=f"a duplicate at {consumer}: the order is still its marker",
        )
    assert kept(app, order_id) == document
    assert len(events(app, order_id)) == 2


def test_given_another_content_when_a_fulfilment_comes_again_then_it_is_dead_lettered_with_the_field(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    request_fulfilment(app, order_id)
    eventually(lambda: len(kinds(app, order_id)) == 2, what="OrderFulfilled")

    again = {"Deduplication-Key": order_id}
    message_id = uuid.uuid4().hex
    request_fulfilment(
        app, order_id, warehouse="MUC-1", message_id=message_id, application_properties=again
    )

    dead = dead_letter(app.broker, "fulfilment", lambda m: m.message_id == message_id)
    assert dead.reason == "PayloadMismatch"
    assert "warehouse" in (dead.description or "")


def test_given_a_large_order_when_it_is_fulfilled_then_it_fits_into_one_transaction(
    app: RunningApp,
) -> None:
    lines = [{"sku": f"sku-{n}", "quantity": 1, "unit_price": "1.00"} for n in range(300)]
    order_id = placed(app, lines=lines)

    request_fulfilment(app, order_id)

    eventually(lambda: len(kinds(app, order_id)) == 2, what="OrderFulfilled")
    assert kept(app, order_id)["fulfilment_status"] == "fulfilled"


def test_given_a_commit_whose_process_died_when_a_sweep_comes_then_its_message_is_sent(
    app: RunningApp, request: pytest.FixtureRequest
) -> None:
    """A pending document, as such a process leaves it, in the app's own store."""
    order_id = f"ord-{uuid.uuid4().hex[:12]}"
    event = events(app, placed(app))[0][1]
    left = msgspec.structs.replace(event, id=f"evt-{order_id}", subject=order_id)
    asyncio.run(_leave_behind(app, request, order_id, left))

    base = str(app.http.base_url).removesuffix("/api/")
    assert httpx.post(f"{base}/admin/functions/sweep_outbox", json={}).status_code == 202

    [(message, _)] = eventually(lambda: events(app, order_id) or None, what="the message")
    assert message.message_id == f"left-{order_id}"
    assert message.application_properties["Resend-Count"] == 1
    assert message.application_properties["First-Enqueued-Time"] == "2023-11-14T22:13:20+00:00"
    assert asyncio.run(_due(app, request)) == 0, "what was sent is cleared"


async def _leave_behind(
    app: RunningApp, request: pytest.FixtureRequest, order_id: str, event: OrderEvent
) -> None:
    committed_at = 1_700_000_000.0
    message = Message(
        destination="order-events",
        message_id=f"left-{order_id}",
        ordinal=1,
        body=event.encoded(),
        session_id=order_id,
        enqueued_at=committed_at,
    )
    parcel = Parcel(
        partition=order_id,
        owner=uuid.uuid4().hex,
        messages=(message,),
        due_at=committed_at + 60.0,
        announced_at=committed_at,
    )
    async with _store_of(app, request) as store:
        if store.announces:
            await store.announce(parcel)
        assert await store.commit(order_id, parcel.pending()) is None


async def _due(app: RunningApp, request: pytest.FixtureRequest) -> int:
    """How many parcels are there, due now or one day."""
    async with _store_of(app, request) as store:
        for _ in range(100):
            due = len(await store.due(4_000_000_000.0, 1000))
            if not due:
                break
            await asyncio.sleep(0.05)
        return due


@asynccontextmanager
async def _store_of(app: RunningApp, request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
    """The app's store of orders."""
    own = app.storage_queue.removeprefix("orders-")
    if app.http.get("/health").json()["store"] == "table":
        connection = app.azurite.connection_string
        async with TableClient.from_connection_string(connection, f"orders{own}") as table:
            yield TableInbox(table)
        return
    server: CosmosServer = request.getfixturevalue("cosmos")
    async with CosmosClient(server.endpoint, server.key, **CLIENT_OPTIONS) as client:
        container = Container(
            client, database=f"app{own}", container=f"orders{own}", partition_path="/order_id"
        )
        yield CosmosInbox(container, partition_property="order_id")
