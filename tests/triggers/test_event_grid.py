"""The Event Grid trigger: either schema, whatever the annotation; what can never succeed is set aside."""

import base64
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency import (
    MalformedContent,
    PermanentFailure,
    ResultCodec,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import event_grid
from shared.idempotency.triggers.cloud_event import CloudEvent, delivery_of, from_json
from tests.triggers.doubles import DownStore, InstantClock, consumer_over
from tests.triggers.http_route import PATIENT

TIME = datetime(2024, 5, 1, 12, tzinfo=UTC)


def cloud_event(id_: Any = "e-1", **changes: Any) -> func.CloudEvent:
    fields: dict[str, Any] = {
        "id": id_,
        "source": "/shipping",
        "type": "shop.shipped",
        "specversion": "1.0",
        "subject": "ord-1",
        "time": TIME,
        "data": {"status": "shipped"},
    }
    return func.CloudEvent(**{**fields, **changes})


def event_grid_event(id_: str = "e-1", **changes: Any) -> func.EventGridEvent:
    fields: dict[str, Any] = {
        "id": id_,
        "topic": "/shipping",
        "event_type": "shop.shipped",
        "subject": "ord-1",
        "event_time": TIME,
        "data": {"status": "shipped"},
        "data_version": "1",
    }
    return func.EventGridEvent(**{**fields, **changes})


class Trigger:
    """A protected function behind the trigger."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.handled: list[CloudEvent] = []
        self.aside: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.clock = InstantClock()

        def received(event: CloudEvent) -> None:
            self.handled.append(event)
            if self.error:
                raise self.error

        async def set_aside(event: event_grid.Arrived, reason: str, description: str) -> None:
            self.aside.append((event.id, reason))

        consumer = consumer_over(store or MemoryStore(), PATIENT)
        protect = event_grid.idempotent(consumer, set_aside=set_aside, clock=self.clock)
        self.deliver = protect(received)


@pytest.mark.parametrize("arrived", [cloud_event(), event_grid_event()], ids=["cloud", "own"])
async def test_either_schema_is_the_same_event_to_the_handler(arrived: Any) -> None:
    trigger = Trigger()
    await trigger.deliver(arrived)
    await trigger.deliver(arrived)
    [event] = trigger.handled
    assert (event.source, event.id, event.type, event.subject, event.time) == (
        "/shipping", "e-1", "shop.shipped", "ord-1", TIME,
    )  # fmt: skip
    assert event.data == b'{"status":"shipped"}'


async def test_one_event_by_both_schemas_is_one_event() -> None:
    trigger = Trigger()
    await trigger.deliver(cloud_event())
    await trigger.deliver(event_grid_event())
    assert len(trigger.handled) == 1
    assert trigger.aside == []


async def test_a_number_that_the_worker_has_rounded_is_no_mismatch_with_the_sender_s_own() -> None:
    store = MemoryStore()
    trigger = Trigger(store)
    by_http = from_json(
        b'{"specversion":"1.0","id":"e-1","source":"/shipping","type":"shop.shipped",'
        b'"subject":"ord-1","data":{"price":1.10}}'
    )
    codec: ResultCodec[None] = ResultCodec(type(None))

    async def nothing() -> None: ...

    await consumer_over(store).handle(delivery_of(by_http, trigger="http"), nothing, codec)
    await trigger.deliver(cloud_event(data={"price": 1.1}))

    assert (trigger.handled, trigger.aside) == ([], []), "a duplicate"


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({"data": None}, b""),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data": None, "data_base64": base64.b64encode(b"\xff").decode()}, b"\xff"),
    ],
)
async def test_data_is_what_it_would_be_in_binary_mode(
    changes: dict[str, Any], data: bytes
) -> None:
    trigger = Trigger()
    await trigger.deliver(cloud_event(**changes))
    assert trigger.handled[0].data == data


@pytest.mark.parametrize(
    ("arrived", "reason"),
    [
        (cloud_event(None), "SchemaViolation"),
        (cloud_event(source=""), "SchemaViolation"),
        (cloud_event(specversion="0.3"), "SchemaViolation"),
        (cloud_event(data=None, data_base64="no base64"), "SchemaViolation"),
        (event_grid_event(topic=None), "SchemaViolation"),
        (event_grid_event("i" * 1100), "InvalidKey"),
    ],
)
async def test_what_is_no_event_is_set_aside_with_the_reason(arrived: Any, reason: str) -> None:
    trigger = Trigger()
    await trigger.deliver(arrived)
    assert trigger.aside == [(arrived.id, reason)]
    assert trigger.handled == []


async def test_an_id_with_other_content_is_set_aside() -> None:
    trigger = Trigger()
    await trigger.deliver(cloud_event())
    await trigger.deliver(cloud_event(data={"status": "lost"}))
    assert trigger.aside == [("e-1", "PayloadMismatch")]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PermanentFailure("Gone"), "Gone"), (MalformedContent("x", reason="Bad"), "Bad")],
)
async def test_what_can_never_succeed_is_set_aside_each_time(error: Exception, reason: str) -> None:
    trigger = Trigger()
    trigger.error = error
    await trigger.deliver(cloud_event())
    await trigger.deliver(cloud_event())
    assert trigger.aside == [("e-1", reason)] * 2


@pytest.mark.parametrize("error", [TransientFailure("not now"), LookupError("broken")])
async def test_what_may_succeed_later_fails_the_invocation_so_that_it_is_sent_again(
    error: Exception,
) -> None:
    trigger = Trigger()
    trigger.error = error
    with pytest.raises(type(error)):
        await trigger.deliver(cloud_event())
    assert 0 < trigger.clock.slept[-1] <= 5
    trigger.error = None
    await trigger.deliver(cloud_event())
    assert len(trigger.handled) == 2


async def test_while_the_store_is_down_nothing_runs() -> None:
    store = DownStore()
    trigger = Trigger(store)
    with pytest.raises(StoreUnavailable):
        await trigger.deliver(cloud_event())
    assert trigger.handled == []
    store.down = False
    await trigger.deliver(cloud_event())
    assert len(trigger.handled) == 1
