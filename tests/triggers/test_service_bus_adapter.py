"""Service Bus: which key, what the record knows of a message, and the ways of settling it."""

import asyncio
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    Cause,
    ConfigurationError,
    Delivery,
    DeliveryRejected,
    Handled,
    MissingKey,
    Outcome,
    TransientFailure,
    canonical_json,
)
from shared.idempotency.events import DeliveryHandled, Event
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import service_bus
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement
from tests.triggers.doubles import (
    DownStore,
    Effects,
    InstantClock,
    RecordedActions,
    ServiceBusByBinding,
    Told,
    consumer_over,
    service_bus_message,
)

KEY = service_bus.DEDUPLICATION_KEY
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


# Settlement by the binding


async def test_a_settlement_that_fails_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    effects, store = Effects(), MemoryStore()
    broker = ServiceBusByBinding(consumer_over(store), effects)
    lost = RecordedActions(RuntimeError("the lock is lost"))

    await broker.function(service_bus_message(), actions=lost)
    assert "the lock is lost" in caplog.text

    assert await broker.deliver(ORDER, count=2) == "done"
    assert len(effects) == 1


async def test_a_dead_lettering_that_fails_is_tried_again_with_the_next_delivery() -> None:
    broker = ServiceBusByBinding(consumer_over(MemoryStore()), Effects())
    await broker.function(
        service_bus_message(message_id=None), actions=RecordedActions(RuntimeError("gone"))
    )
    assert await broker.deliver(ORDER, message_id=None, count=2) == "aside: MissingKey"


async def test_a_description_is_cut_to_what_the_broker_takes() -> None:
    told = Told(Handled(outcome=Outcome.MISMATCH, reason="PayloadMismatch", description="x" * 9999))
    broker = ServiceBusByBinding(told, Effects())
    await broker.deliver(ORDER)
    assert len(broker.described[0]) == 1024


async def test_without_the_worker_s_client_nothing_runs(effects: Effects) -> None:
    broker = ServiceBusByBinding(consumer_over(MemoryStore()), effects)
    with pytest.raises(ConfigurationError, match="actions="):
        await broker.function(service_bus_message())
    assert effects == []


async def test_many_hanging_handlers_do_not_keep_a_message_from_being_settled(
    effects: Effects,
) -> None:
    broker = ServiceBusByBinding(consumer_over(MemoryStore()), effects)
    release = threading.Event()
    hanging = [asyncio.to_thread(release.wait, 10) for _ in range(64)]
    blocked = asyncio.gather(*hanging)
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            assert await broker.deliver(ORDER) == "done"
    finally:
        release.set()
        await blocked


def test_the_binding_needs_the_host_not_to_complete_by_itself() -> None:
    assert BindingSettlement().auto_complete is False


# Settlement by a quarantine queue


async def test_the_copy_is_sent_before_the_host_may_complete() -> None:
    happened: list[str] = []

    async def quarantine(message: func.ServiceBusMessage, reason: str, description: str) -> None:
        happened.append(f"sent: {reason}")

    @service_bus.idempotent(Told(MissingKey("x")), settlement=QuarantineSettlement(quarantine))
    async def process(message: func.ServiceBusMessage) -> None: ...

    await process(service_bus_message(message_id=None))
    happened.append("returned to the host")
    assert happened == ["sent: MissingKey", "returned to the host"]


@pytest.mark.parametrize("error", [TransientFailure("queue down"), OSError("queue down")])
async def test_while_the_quarantine_is_down_the_message_is_paced_and_not_completed(
    error: Exception,
) -> None:
    async def quarantine(message: func.ServiceBusMessage, reason: str, description: str) -> None:
        raise error

    clock = InstantClock()
    settlement = QuarantineSettlement(quarantine)

    @service_bus.idempotent(Told(MissingKey("x")), settlement=settlement, clock=clock)
    async def process(message: func.ServiceBusMessage) -> None: ...

    with pytest.raises(type(error)):
        await process(service_bus_message(delivery_count=5))
    [held] = clock.slept
    assert held > 10


async def test_a_store_outage_is_raised_only_where_the_host_completes_by_itself() -> None:
    async def quarantine(
        message: func.ServiceBusMessage, reason: str, description: str
    ) -> None: ...

    clock = InstantClock()
    down = consumer_over(DownStore())

    @service_bus.idempotent(down, settlement=QuarantineSettlement(quarantine), clock=clock)
    async def by_quarantine(message: func.ServiceBusMessage) -> None: ...

    @service_bus.idempotent(down, settlement=BindingSettlement(), clock=clock)
    async def by_binding(message: func.ServiceBusMessage) -> None: ...

    with pytest.raises(TransientFailure, match="comes back"):
        await by_quarantine(service_bus_message())
    actions = RecordedActions()
    await by_binding(service_bus_message(), actions=actions)
    assert actions.done == []


# Nothing of the payload


async def test_the_payload_is_in_no_log_and_no_description(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    broker = ServiceBusByBinding(consumer_over(MemoryStore()), Effects())
    for body in (b'{"card": "s3cret"}', b'{"card": "s3cret!"}', b"s3cret", b'{"s3cret": '):
        for message_id in ("o-1", None):
            await broker.deliver(body, message_id=message_id)
    assert broker.described
    assert caplog.records
    said = [caplog.text, *broker.described, *(str(vars(r)) for r in caplog.records)]
    assert "s3cret" not in "\n".join(said)
