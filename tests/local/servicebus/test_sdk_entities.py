"""Topics, sessions, missing entities and sizes, as the unmodified SDK meets them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from local.servicebus import Broker
from tests.local.servicebus.sdk_steps import ENTITIES, body, connect, opened, orders, take

pytestmark = pytest.mark.integration


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(ENTITIES) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[ServiceBusClient]:
    async with connect(broker) as running:
        yield running


async def test_topics_copy_to_every_subscription(broker: Broker, client: ServiceBusClient) -> None:
    sender = client.get_topic_sender("order-events")
    email, loyalty, letters = (
        client.get_subscription_receiver("order-events", name, sub_queue=sub_queue)
        for name, sub_queue in (("email", None), ("loyalty", None), ("email", "deadletter"))
    )
    async with opened(broker, sender, email, loyalty, letters):
        await sender.send_messages([ServiceBusMessage("e1", message_id="e1")] * 2)
        [message] = await take(email)
        await email.dead_letter_message(message, reason="Unreadable")
        [letter] = await take(letters)
        assert letter.dead_letter_reason == "Unreadable"
        [message] = await take(loyalty)
        await loyalty.renew_message_lock(message)
        await loyalty.complete_message(message)
    assert broker.counts("order-events").dropped_by_detection == 1
    assert broker.counts("order-events/subscriptions/loyalty").completed == 1
    assert broker.counts("order-events/subscriptions/email").dead_lettered == 1


async def test_sessions_are_exclusive_and_keep_their_state(
    broker: Broker, client: ServiceBusClient
) -> None:
    def session(session_id: Any) -> Any:
        return client.get_queue_receiver("steps", session_id=session_id, max_wait_time=5)

    sender, first = client.get_queue_sender("steps"), session("A")
    async with opened(broker, sender, first):
        for name in ("A0", "B0", "A1", "B1"):
            await sender.send_messages(ServiceBusMessage(name, session_id=name[0]))
        taken, following = session("A"), session(NEXT_AVAILABLE_SESSION)
        outcomes = await asyncio.gather(
            taken.__aenter__(), following.__aenter__(), return_exceptions=True
        )
        assert isinstance(outcomes[0], SessionCannotBeLockedError)
        assert following.session.session_id == "B"
        assert [body(each) for each in await take(following, 2)] == [b"B0", b"B1"]
        assert [body(each) for each in await take(first, 2)] == [b"A0", b"A1"]
        await first.session.set_state(b"half way")
        broker.clock.advance(50)
        await first.session.renew_lock()
        broker.clock.advance(50)
        assert await first.session.get_state() == b"half way"
        assert broker.counts("steps").locks_expired == 2, "the other one did not renew"
        broker.clock.advance(10)
        with pytest.raises(SessionLockLostError):
            await first.session.renew_lock()
        await asyncio.gather(taken.close(), following.close(), return_exceptions=True)
    assert [each.delivery_count for each in broker.messages("steps")] == [1, 1, 1, 1]


async def test_closing_a_session_frees_it_and_its_messages_at_once(
    broker: Broker, client: ServiceBusClient
) -> None:
    sender, first, second = (
        client.get_queue_sender("steps"),
        client.get_queue_receiver("steps", session_id="A"),
        client.get_queue_receiver("steps", session_id="A"),
    )
    async with opened(broker, sender, first):
        await sender.send_messages(ServiceBusMessage("x", session_id="A"))
        await take(first)
        await first.close()
        async with opened(broker, second):
            [message] = await take(second)
            assert message.delivery_count == 0


async def test_waiting_for_a_session_ends_when_none_comes(client: ServiceBusClient) -> None:
    waiting = client.get_queue_receiver(
        "steps", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.3
    )
    with pytest.raises(OperationTimeoutError):
        await waiting.__aenter__()


async def test_a_session_that_comes_later_goes_to_who_waits(
    broker: Broker, client: ServiceBusClient
) -> None:
    waiting = client.get_queue_receiver("steps", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    opening = asyncio.create_task(waiting.__aenter__())
    sender = client.get_queue_sender("steps")
    async with opened(broker, sender):
        await asyncio.sleep(0.2)
        assert not opening.done()
        await sender.send_messages(ServiceBusMessage("x", session_id="late"))
        await opening
        assert waiting.session.session_id == "late"
        assert len(await take(waiting)) == 1
    await waiting.close()


async def test_an_unknown_entity_is_named_in_the_error(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("nope")
    receiver = client.get_queue_receiver("nope")
    manager = client.get_queue_receiver("nope")
    outcomes = await asyncio.gather(
        sender.send_messages(ServiceBusMessage("x")),
        receiver.receive_messages(1, max_wait_time=2),
        manager.peek_messages(1),
        return_exceptions=True,
    )
    for outcome in outcomes:
        assert isinstance(outcome, MessagingEntityNotFoundError)
        assert "nope" in str(outcome)


async def test_the_wrong_kind_of_receiver_is_refused(client: ServiceBusClient) -> None:
    receivers = (
        client.get_queue_receiver("steps"),
        client.get_queue_receiver("orders", session_id="A"),
        client.get_queue_receiver("order-events"),
    )
    outcomes = await asyncio.gather(
        *(each.receive_messages(1, max_wait_time=2) for each in receivers), return_exceptions=True
    )
    for outcome, why in zip(
        outcomes, ("requires sessions", "does not support sessions", "is a topic"), strict=True
    ):
        assert isinstance(outcome, ServiceBusError)
        assert why in str(outcome)


async def test_messages_pass_up_to_the_limit_and_not_beyond(broker: Broker) -> None:
    async with orders(broker) as ends:
        blobs = [os.urandom(256 * 1024), os.urandom(1024 * 1024 - 200)]
        await ends.send(*map(ServiceBusMessage, blobs))
        assert [body(each) for each in await ends.take(2)] == blobs
        with pytest.raises(MessageSizeExceededError):
            await ends.send(ServiceBusMessage(bytes(1024 * 1024)))
        assert broker.counts("orders").sent == 2
        await ends.send(ServiceBusMessage("the link still works"))
