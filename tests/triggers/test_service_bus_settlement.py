"""Service Bus: the two ways of settling, and what they do when they fail."""

import asyncio
import logging
import threading
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency import (
    ConfigurationError,
    Handled,
    MissingKey,
    Outcome,
    TransientFailure,
)
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

ORDER = b'{"order_id": "o-1"}'


@pytest.fixture
def effects() -> Effects:
    return Effects()


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
    as_the_worker_calls: Any = by_binding
    await as_the_worker_calls(service_bus_message(), actions=actions)
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
