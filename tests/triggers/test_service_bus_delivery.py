"""Service Bus: which key, and what the record knows of a message."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.functions.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    Cause,
    Delivery,
    DeliveryRejected,
    canonical_json,
)
from shared.idempotency.events import DeliveryHandled, Event
from shared.idempotency.properties import DEDUPLICATION_KEY as KEY
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import service_bus
from tests.triggers.doubles import (
    Effects,
    ServiceBusByBinding,
    consumer_over,
    service_bus_message,
)

ORDER = b'{"order_id": "o-1"}'


def to_delivery(message: ServiceBusMessage) -> Delivery:
    return service_bus.to_delivery(message, canonical_json)


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def broker(effects: Effects) -> ServiceBusByBinding:
    return ServiceBusByBinding(consumer_over(MemoryStore()), effects)


# The key


async def test_the_deduplication_key_wins_over_the_message_id(
    broker: ServiceBusByBinding, effects: Effects
) -> None:
    await broker.deliver(ORDER, message_id="o-1")
    await broker.deliver(ORDER, message_id="a new one", properties={KEY: "o-1"})
    assert effects == [ORDER]


async def test_two_messages_that_share_a_correlation_id_both_run(
    broker: ServiceBusByBinding, effects: Effects
) -> None:
    await broker.deliver(ORDER, message_id="o-1", correlation_id="c")
    await broker.deliver(ORDER, message_id="o-2", correlation_id="c")
    assert len(effects) == 2


async def test_one_key_is_a_duplicate_whatever_else_the_broker_changes(
    broker: ServiceBusByBinding, effects: Effects
) -> None:
    for number in range(3):
        await broker.deliver(
            ORDER,
            message_id="o-1",
            correlation_id=f"c-{number}",
            lock_token=str(uuid4()),
            sequence_number=number,
            enqueued_time_utc=datetime.now(UTC) + timedelta(minutes=number),
            session_id=f"s-{number}",
        )
    assert effects == [ORDER]


@pytest.mark.parametrize("message_id", [None, ""])
async def test_a_message_without_an_id_is_dead_lettered_and_nothing_runs(
    broker: ServiceBusByBinding, effects: Effects, message_id: str | None
) -> None:
    assert await broker.deliver(ORDER, message_id=message_id) == "aside: MissingKey"
    assert "MessageId" in broker.described[0]
    assert effects == []


@pytest.mark.parametrize("value", ["", None])
async def test_an_empty_deduplication_key_is_refused_rather_than_left_to_the_message_id(
    broker: ServiceBusByBinding, effects: Effects, value: Any
) -> None:
    assert await broker.deliver(ORDER, properties={KEY: value}) == "aside: MissingKey"
    assert effects == []


@pytest.mark.parametrize("value", [True, 1.5, ["o-1"], {"id": "o-1"}])
async def test_a_deduplication_key_that_is_no_text_is_refused(
    broker: ServiceBusByBinding, value: Any
) -> None:
    assert await broker.deliver(ORDER, properties={KEY: value}) == "aside: InvalidKey"


async def test_a_number_as_deduplication_key_is_its_digits() -> None:
    assert to_delivery(service_bus_message(properties={KEY: 7})).key == "7"


async def test_an_oversized_key_is_dead_lettered(broker: ServiceBusByBinding) -> None:
    assert await broker.deliver(ORDER, properties={KEY: "x" * 1025}) == "aside: InvalidKey"
    assert await broker.deliver(ORDER, properties={KEY: "x" * 1024}) == "done"


async def test_hostile_ids_are_processed_each_once(
    broker: ServiceBusByBinding, effects: Effects
) -> None:
    hostile = ["../", "..", "#", "a/b?c#d%2F", "\0", "🦄", "x" * 128, " ", "a", "A", "a ", "\ud800"]
    for message_id in hostile * 2:
        assert await broker.deliver(ORDER, message_id=message_id) == "done"
    assert len(effects) == len(hostile)


@given(
    message_id=st.none() | st.text(max_size=40),
    properties=st.dictionaries(
        st.sampled_from(
            [KEY, "traceparent", "Diagnostic-Id", "Forced-Resend", "First-Enqueued-Time"]
        ),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    ),
    body=st.binary(max_size=40),
)
def test_any_message_is_either_a_delivery_or_rejected(
    message_id: str | None, properties: dict[str, Any], body: bytes
) -> None:
    message = service_bus_message(body, message_id, properties=properties)
    try:
        delivery = to_delivery(message)
    except DeliveryRejected:
        return
    assert delivery.key


# What the record knows


def test_a_delivery_tells_what_the_broker_knows() -> None:
    enqueued = datetime(2026, 3, 1, 12, tzinfo=UTC)
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    message = service_bus_message(
        ORDER,
        delivery_count=3,
        sequence_number=9,
        enqueued_time_utc=enqueued,
        correlation_id="c",
        properties={"Diagnostic-Id": trace},
    )
    assert to_delivery(message) == Delivery(
        key="o-1",
        fingerprint=canonical_json(ORDER),
        trigger="service_bus",
        redelivered=True,
        delivery_count=3,
        sequence_number=9,
        sent_at=enqueued.timestamp(),
        correlation_id="c",
        trace_parent=trace,
        body=ORDER,
    )


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.0000000+00:00", "2026-03-01T12:00:00"]
)
def test_a_re_send_tells_when_it_was_first_enqueued(text: str) -> None:
    message = service_bus_message(properties={"First-Enqueued-Time": text})
    assert to_delivery(message).sent_at == datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("value", ["yesterday", "", 7, None])
def test_a_first_time_that_cannot_be_read_leaves_the_broker_s_own(value: Any) -> None:
    enqueued = datetime(2026, 3, 1, tzinfo=UTC)
    message = service_bus_message(
        enqueued_time_utc=enqueued, properties={"First-Enqueued-Time": value}
    )
    assert to_delivery(message).sent_at == enqueued.timestamp()


def test_without_any_time_nothing_is_known_of_its_age() -> None:
    assert to_delivery(service_bus_message(enqueued_time_utc=None)).sent_at is None


@pytest.mark.parametrize(("value", "forced"), [("true", True), (True, True), ("no", False)])
def test_an_operator_s_re_send_is_forced(value: Any, forced: bool) -> None:
    message = service_bus_message(properties={"Forced-Resend": value})
    assert to_delivery(message).forced is forced


@pytest.mark.parametrize("value", ["x" * 100_000, "00-zz-1-01", 7, "\0"])
def test_what_is_no_trace_context_is_not_kept(value: Any) -> None:
    message = service_bus_message(properties={"traceparent": value})
    assert to_delivery(message).trace_parent is None


@pytest.mark.parametrize(("sequence", "cause"), [(1, Cause.REDELIVERY), (2, Cause.RESEND)])
async def test_a_duplicate_s_cause_is_told_by_its_sequence_number(
    effects: Effects, sequence: int, cause: Cause
) -> None:
    events: list[Event] = []
    broker = ServiceBusByBinding(consumer_over(MemoryStore(), observer=events.append), effects)
    await broker.deliver(ORDER, sequence_number=1)
    await broker.deliver(ORDER, sequence_number=sequence)
    handled = [e.handled for e in events if isinstance(e, DeliveryHandled)]
    assert [h.cause for h in handled] == [None, cause]


async def test_without_fingerprint_other_content_is_a_duplicate(effects: Effects) -> None:
    broker = ServiceBusByBinding(consumer_over(MemoryStore()), effects, fingerprint=None)
    await broker.deliver(b"not json")
    assert await broker.deliver(b"other") == "done"
    assert effects == [b"not json"]
