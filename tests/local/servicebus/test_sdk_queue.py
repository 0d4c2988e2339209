"""The unmodified asynchronous SDK against a queue."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError

from local.servicebus import Broker, Entities, QueueSettings
from tests.local.servicebus.sdk_steps import (
    ENTITIES,
    Ends,
    body,
    both_ends,
    connect,
    nothing_waits,
    opened,
    orders,
    until,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

QUEUES = tuple(f"queue-{number}" for number in range(8))


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    """One broker for the tests that only need a queue of their own."""
    with Broker(Entities(tuple(QueueSettings(each, max_delivery_count=3) for each in QUEUES))) as b:
        yield b


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(shared: Broker) -> AsyncIterator[list[Ends]]:
    """Opening a link takes the SDK half a second: all at once, for all tests."""
    async with both_ends(shared, *QUEUES) as ends:
        yield ends


@pytest.fixture
def ends(pool: list[Ends]) -> Ends:
    """Both ends of a queue that no other test uses."""
    return pool.pop()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of the test's own."""
    with Broker(ENTITIES) as running:
        yield running


async def test_a_message_arrives_as_it_was_sent(ends: Ends) -> None:
    await ends.send(
        ServiceBusMessage(
            b"\x00hello",
            message_id="o-1",
            application_properties={"int": 1, "text": "v", "real": 0.5, "flag": True},
            subject="order",
            correlation_id="c-1",
            content_type="application/json",
            reply_to="answers",
            time_to_live=timedelta(hours=1),
        )
    )
    [message] = await ends.take()
    assert isinstance(message.lock_token, UUID)
    assert (body(message), message.message_id) == (b"\x00hello", "o-1")
    assert message.application_properties == {
        b"int": 1,
        b"text": b"v",
        b"real": 0.5,
        b"flag": True,
    }
    assert (message.subject, message.correlation_id) == ("order", "c-1")
    assert (message.content_type, message.reply_to) == ("application/json", "answers")
    assert message.time_to_live == timedelta(hours=1)
    assert (message.delivery_count, message.sequence_number) == (0, 1)
    assert message.locked_until_utc is not None
    assert message.enqueued_time_utc is not None
    now = datetime.now(UTC)
    assert timedelta(seconds=50) < message.locked_until_utc - now < timedelta(seconds=61)
    assert abs(message.enqueued_time_utc - now) < timedelta(seconds=5)


async def test_batches_lists_and_single_messages_arrive_in_order(ends: Ends) -> None:
    batch = await ends.sender.create_message_batch()
    for number in range(3):
        batch.add_message(ServiceBusMessage(f"batch {number}"))
    await ends.sender.send_messages(batch)
    await ends.sender.send_messages([ServiceBusMessage("list 0"), ServiceBusMessage("list 1")])
    await ends.sender.send_messages(AmqpAnnotatedMessage(data_body=[b"two ", b"parts"]))
    await ends.sender.send_messages(AmqpAnnotatedMessage(value_body="a value"))
    await ends.sender.send_messages(ServiceBusMessage(b""))
    messages = await ends.take(8)
    assert [body(each) for each in messages[:6]] == [
        b"batch 0",
        b"batch 1",
        b"batch 2",
        b"list 0",
        b"list 1",
        b"two parts",
    ]
    assert messages[6].raw_amqp_message.body == b"a value"
    assert body(messages[7]) == b""


async def test_abandoning_counts_and_the_last_attempt_dead_letters(
    shared: Broker, ends: Ends
) -> None:
    await ends.send(ServiceBusMessage("poison", message_id="p", application_properties={"x": 1}))
    for attempt in range(3):
        [message] = await ends.take()
        assert message.delivery_count == attempt
        await ends.receiver.abandon_message(message)
    assert await nothing_waits(ends.receiver)
    [letter] = shared.messages(f"{ends.queue}/$deadletterqueue")
    assert (letter.message_id, letter.delivery_count) == ("p", 3)
    assert letter.reason == "MaxDeliveryCountExceeded"
    assert letter.application_properties["x"] == 1
    assert (shared.counts(ends.queue).abandoned, shared.counts(ends.queue).dead) == (3, 1)


async def test_an_expired_lock_redelivers_and_refuses_the_late_settlement(
    shared: Broker, ends: Ends
) -> None:
    await ends.send(ServiceBusMessage("slow"))
    [first] = await ends.take()
    shared.clock.advance(60)
    [second] = await ends.take()
    assert second.delivery_count == 1
    assert second.lock_token != first.lock_token
    with pytest.raises(MessageLockLostError):
        await ends.receiver.renew_message_lock(first)
    with pytest.raises(MessageLockLostError):
        await ends.receiver.complete_message(first)
    await ends.receiver.complete_message(second)
    counts = shared.counts(ends.queue)
    assert (counts.locks_expired, counts.completed, counts.delivered) == (1, 1, 2)
    assert counts.stale_settlements == 1


async def test_a_renewed_lock_outlives_its_first_end(shared: Broker, ends: Ends) -> None:
    await ends.send(ServiceBusMessage("long work"))
    [message] = await ends.take()
    for _ in range(3):
        shared.clock.advance(40)
        renewed = await ends.receiver.renew_message_lock(message)
        # The client lives in real time: its lock must not seem to last 100 seconds.
        assert renewed - datetime.now(UTC) < timedelta(seconds=61)
    await ends.receiver.complete_message(message)
    assert shared.counts(ends.queue).completed == 1


async def test_an_orderly_close_gives_prefetched_messages_back_uncounted(broker: Broker) -> None:
    async with orders(broker, prefetch_count=5) as ends:
        await ends.send(*(ServiceBusMessage(str(number)) for number in range(5)))
        [message] = await ends.take()
        await until(lambda: broker.counts("orders").locked == 5)
        await ends.receiver.abandon_message(message)
        await ends.receiver.close()
        await until(lambda: broker.counts("orders").locked == 0)
    counts = broker.counts("orders")
    assert (counts.active, counts.abandoned, counts.locks_expired) == (5, 1, 0)
    assert [each.delivery_count for each in broker.messages("orders")] == [1, 0, 0, 0, 0]


async def test_a_killed_consumer_loses_its_message_to_the_next_one_after_expiry(
    shared: Broker, ends: Ends
) -> None:
    await ends.send(ServiceBusMessage("crash"))
    script = (
        "import sys, time\n"
        "from azure.servicebus import ServiceBusClient\n"
        "client = ServiceBusClient.from_connection_string(sys.argv[1])\n"
        "receiver = client.get_queue_receiver(sys.argv[2])\n"
        "print(len(receiver.receive_messages(1, max_wait_time=10)), flush=True)\n"
        "time.sleep(60)\n"
    )
    consumer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        shared.connection_string,
        ends.queue,
        stdout=asyncio.subprocess.PIPE,
    )
    assert consumer.stdout is not None
    assert await consumer.stdout.readline() == b"1\n"
    os.kill(consumer.pid, signal.SIGKILL)
    await consumer.wait()
    assert await nothing_waits(ends.receiver), "the dead consumer's lock still holds"
    shared.clock.advance(60)
    [message] = await ends.take()
    assert message.delivery_count == 1
    assert shared.counts(ends.queue).released == 0


async def test_peek_defer_and_schedule(shared: Broker, ends: Ends) -> None:
    await ends.send(ServiceBusMessage("one"), ServiceBusMessage("two"))
    peeked = await ends.receiver.peek_messages(10)
    assert [body(each) for each in peeked] == [b"one", b"two"]
    [one, two] = await ends.take(2)
    await ends.receiver.defer_message(one)
    await ends.receiver.complete_message(two)
    assert one.sequence_number is not None
    [deferred] = await ends.receiver.receive_deferred_messages(one.sequence_number)
    assert body(deferred) == b"one"
    await ends.receiver.complete_message(deferred)
    assert shared.messages(ends.queue) == ()

    soon = datetime.now(UTC) + timedelta(seconds=30)
    await ends.sender.schedule_messages(ServiceBusMessage("later"), soon)
    never = await ends.sender.schedule_messages([ServiceBusMessage("never")], soon)
    by_property = soon + timedelta(seconds=1)
    await ends.send(ServiceBusMessage("later too", scheduled_enqueue_time_utc=by_property))
    await ends.sender.cancel_scheduled_messages(never)
    assert await nothing_waits(ends.receiver)
    assert shared.counts(ends.queue).scheduled == 2
    shared.clock.advance(32)
    assert [body(each) for each in await ends.take(2)] == [b"later", b"later too"]


async def test_detection_drops_a_repeat_until_its_window_is_over() -> None:
    entities = ENTITIES.with_queue("orders", detection_window=timedelta(seconds=15))
    with Broker(entities) as broker:
        async with orders(broker) as ends:
            same = [ServiceBusMessage("x", message_id="same") for _ in range(3)]
            await ends.send(*same, ServiceBusMessage("y", message_id="other"))
            assert [each.message_id for each in broker.messages("orders")] == ["same", "other"]
            broker.clock.advance(15)
            await ends.send(ServiceBusMessage("x", message_id="same"))
        counts = broker.counts("orders")
        assert (counts.sent, counts.dropped_by_detection, counts.active) == (5, 2, 3)


async def test_a_message_past_its_time_to_live_reaches_who_waits_for_dead_letters() -> None:
    with Broker(ENTITIES.with_queue("orders", dead_letter_on_expiration=True)) as broker:
        async with orders(broker, sub_queue="deadletter") as ends:
            await ends.send(ServiceBusMessage("short", time_to_live=timedelta(seconds=10)))
            receiving = asyncio.create_task(ends.take())
            await asyncio.sleep(0.05)
            broker.clock.advance(10)
            [letter] = await receiving
            assert letter.dead_letter_reason == "TTLExpiredException"
            assert letter.dead_letter_source == "orders"
            await ends.receiver.complete_message(letter)
            assert broker.counts("orders").dead == 0


async def test_receive_and_delete_needs_no_settlement(broker: Broker) -> None:
    async with orders(broker, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as ends:
        await ends.send(ServiceBusMessage("a"), ServiceBusMessage("b"))
        assert [body(each) for each in await ends.take(2)] == [b"a", b"b"]
    assert broker.messages("orders") == ()


HOSTILE = ["a\x00b", "😀" * 64, "x" * 128, "../../etc", "a#b?c%2F", " ", "e\u0301", "\ufeff", "'\""]


async def test_hostile_ids_and_reasons_survive_unchanged(shared: Broker, ends: Ends) -> None:
    await ends.send(*(ServiceBusMessage("x", message_id=each) for each in HOSTILE))
    assert [each.message_id for each in shared.messages(ends.queue)] == HOSTILE
    messages = await ends.take(len(HOSTILE))
    assert [each.message_id for each in messages] == HOSTILE
    for message in messages:
        await ends.receiver.dead_letter_message(
            message, reason=message.message_id, error_description="changed: quantity"
        )
    letters = shared.messages(f"{ends.queue}/$deadletterqueue")
    assert [each.reason for each in letters] == HOSTILE
    assert {each.description for each in letters} == {"changed: quantity"}


async def test_competing_consumers_never_hold_the_same_message(broker: Broker) -> None:
    held: set[str | None] = set()
    done: list[str | None] = []

    async def consume(ends: Ends) -> None:
        while len(done) < 200:
            messages = await ends.receiver.receive_messages(10, max_wait_time=0.2)
            for message in messages:
                assert message.message_id not in held
                held.add(message.message_id)
            await asyncio.sleep(0)
            for message in messages:
                held.remove(message.message_id)
                await ends.receiver.complete_message(message)
                done.append(message.message_id)

    async with connect(broker) as client:
        receivers = [client.get_queue_receiver("orders") for _ in range(3)]
        sender = client.get_queue_sender("orders")
        async with opened(broker, sender, *receivers):
            messages = [ServiceBusMessage("x", message_id=str(number)) for number in range(200)]
            await sender.send_messages(messages)
            await asyncio.gather(*(consume(Ends("orders", sender, each)) for each in receivers))
    assert sorted(map(str, done), key=int) == [str(number) for number in range(200)]
    counts = broker.counts("orders")
    assert (counts.delivered, counts.completed, len(broker.messages("orders"))) == (200, 200, 0)


async def test_the_synchronous_sdk_is_served_just_the_same(broker: Broker) -> None:
    from azure.servicebus import ServiceBusClient

    def work() -> None:
        with (
            ServiceBusClient.from_connection_string(broker.connection_string) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders") as receiver,
        ):
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            [first] = receiver.receive_messages(1, max_wait_time=5)
            receiver.renew_message_lock(first)
            receiver.complete_message(first)
            [second] = receiver.receive_messages(1, max_wait_time=5)
            receiver.abandon_message(second)

    await asyncio.to_thread(work)
    assert broker.counts("orders").completed == 1
    assert [each.delivery_count for each in broker.messages("orders")] == [1]
