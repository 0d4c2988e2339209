"""Each fault on demand, as the unmodified SDK meets it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError

from local.servicebus import Broker
from tests.local.servicebus.sdk_steps import ENTITIES, Ends, nothing_waits, orders

pytestmark = pytest.mark.integration


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(ENTITIES) as running:
        yield running


@pytest.fixture
async def ends(broker: Broker) -> AsyncIterator[Ends]:
    """One message waits already."""
    async with orders(broker) as both:
        await both.send(ServiceBusMessage("x", message_id="o-7"))
        yield both


@pytest.fixture
async def persistent(broker: Broker) -> AsyncIterator[Ends]:
    """As `ends`, with a client that tries again when a connection breaks."""
    async with orders(broker, retries=3) as both:
        await both.send(ServiceBusMessage("x", message_id="o-7"))
        yield both


async def test_a_lost_settlement_answer_leaves_the_message_gone_and_the_client_in_doubt(
    broker: Broker, persistent: Ends
) -> None:
    broker.faults.lose_settlement_answer("orders", message_id="o-7")
    [message] = await persistent.take()
    with pytest.raises(MessageLockLostError):
        await persistent.receiver.complete_message(message)
    assert broker.messages("orders") == ()
    assert broker.counts("orders").completed == 1


async def test_a_lost_settlement_brings_the_message_back_after_its_lock(
    broker: Broker, persistent: Ends
) -> None:
    broker.faults.lose_settlement("orders", message_id="o-7")
    [message] = await persistent.take()
    with pytest.raises(MessageLockLostError):
        await persistent.receiver.complete_message(message)
    assert broker.counts("orders").locked == 1
    broker.clock.advance(60)
    [again] = await persistent.take()
    assert again.delivery_count == 1
    await persistent.receiver.complete_message(again)
    assert broker.counts("orders").completed == 1


async def test_a_client_without_retries_only_sees_its_connection_break(
    broker: Broker, ends: Ends
) -> None:
    broker.faults.lose_settlement_answer("orders")
    [message] = await ends.take()
    with pytest.raises(ServiceBusConnectionError):
        await ends.receiver.complete_message(message)


async def test_an_expired_lock_at_settlement_redelivers_with_one_more_delivery(
    broker: Broker, ends: Ends
) -> None:
    broker.faults.expire_lock("orders", message_id="o-7")
    [message] = await ends.take()
    with pytest.raises(MessageLockLostError):
        await ends.receiver.complete_message(message)
    [again] = await ends.take()
    assert again.delivery_count == 1
    await ends.receiver.complete_message(again)
    counts = broker.counts("orders")
    assert (counts.stale_settlements, counts.locks_expired, counts.completed) == (1, 1, 1)


async def test_a_held_settlement_waits_for_its_release(broker: Broker, ends: Ends) -> None:
    held = broker.faults.hold_settlement("orders", message_id="o-7")
    [message] = await ends.take()
    assert not held.wait(0)
    settling = asyncio.create_task(ends.receiver.complete_message(message))
    assert await asyncio.to_thread(held.wait, 5)
    assert broker.counts("orders").locked == 1
    assert not settling.done()
    held.release()
    await settling
    assert broker.counts("orders").completed == 1


async def test_a_settlement_held_while_its_connection_dies_is_lost(
    broker: Broker, ends: Ends
) -> None:
    held = broker.faults.hold_settlement("orders", message_id="o-7")
    [message] = await ends.take()
    settling = asyncio.create_task(ends.receiver.complete_message(message))
    assert await asyncio.to_thread(held.wait, 5)
    broker.drop_connections()
    held.release()
    with pytest.raises(ServiceBusConnectionError):
        await settling
    counts = broker.counts("orders")
    assert (counts.locked, counts.completed) == (1, 0)
    broker.clock.advance(60)
    assert [each.delivery_count for each in broker.messages("orders")] == [1]


async def test_a_settlement_by_management_meets_the_same_faults(broker: Broker, ends: Ends) -> None:
    [message] = await ends.take()
    assert message.sequence_number is not None
    await ends.receiver.defer_message(message)
    [deferred] = await ends.receiver.receive_deferred_messages(message.sequence_number)
    held = broker.faults.hold_settlement("orders", message_id="o-7")
    broker.faults.expire_lock("orders", message_id="o-7")
    settling = asyncio.create_task(ends.receiver.complete_message(deferred))
    assert await asyncio.to_thread(held.wait, 5)
    held.release()
    await settling
    assert broker.messages("orders") == ()


async def test_dropped_connections_are_healed_by_the_client(
    broker: Broker, persistent: Ends
) -> None:
    broker.drop_connections()
    await persistent.send(ServiceBusMessage("after"))
    for message in await persistent.take(2):
        await persistent.receiver.complete_message(message)
    assert broker.counts("orders").completed == 2


async def test_a_restart_keeps_messages_locks_and_detection_history() -> None:
    entities = ENTITIES.with_queue("orders", detection_window=timedelta(minutes=10))
    with Broker(entities) as broker:
        port = broker.port
        async with orders(broker, retries=3) as ends:
            held, waiting = (ServiceBusMessage("x", message_id=each) for each in ("held", "free"))
            await ends.send(held, waiting)
            [first] = await ends.take()
            await asyncio.to_thread(broker.restart)
            assert broker.port == port
            await ends.send(held)
            assert broker.counts("orders").dropped_by_detection == 1
            [second] = await ends.take()
            assert second.message_id == "free"
            assert await nothing_waits(ends.receiver), "the lock from before the restart holds"
            await ends.receiver.complete_message(first)  # by its token, over a new connection
            await ends.receiver.complete_message(second)
        assert broker.counts("orders").completed == 2
