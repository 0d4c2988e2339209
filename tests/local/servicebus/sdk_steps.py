"""What the tests with the SDK share: the entities, and a client's usual steps."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from local.servicebus import Broker, Entities, QueueSettings, TopicSettings

ENTITIES = Entities(
    queues=(
        QueueSettings("orders", lock=timedelta(seconds=60), max_delivery_count=3),
        QueueSettings("steps", lock=timedelta(seconds=60), requires_session=True),
    ),
    topics=(
        TopicSettings(
            "order-events",
            detection_window=timedelta(minutes=10),
            subscriptions=(QueueSettings("email"), QueueSettings("loyalty")),
        ),
    ),
)


def connect(broker: Broker, retries: int = 0) -> ServiceBusClient:
    """The asynchronous SDK, by default without retries that would hide a failure."""
    return ServiceBusClient.from_connection_string(
        broker.connection_string, retry_total=retries, retry_backoff_factor=0.05
    )


@asynccontextmanager
async def opened(
    broker: Broker, *ends: ServiceBusSender | ServiceBusReceiver
) -> AsyncIterator[None]:
    """Senders and receivers, opened at once: the SDK takes half a second for each.

    They end with their connections, as a crashed client's do: an orderly close takes the SDK
    another second. Tests of the orderly close do it themselves.
    """
    await asyncio.gather(*(end.__aenter__() for end in ends))
    try:
        yield
    finally:
        broker.drop_connections()
        for end in ends:
            _spare_waits(end)
        await asyncio.gather(*(end.close() for end in ends), return_exceptions=True)


def _spare_waits(end: Any) -> None:
    """Do not wait for messages in flight, nor for the end of the keep-alive task's nap."""
    handler = end._handler
    if handler is None:
        return
    handler._link.current_link_credit = 0
    if handler._keep_alive_thread is not None:
        handler._keep_alive_thread.cancel()
        handler._keep_alive_thread = None


@dataclass(frozen=True)
class Ends:
    """Both ends of one queue."""

    queue: str
    sender: ServiceBusSender
    receiver: ServiceBusReceiver

    async def send(self, *messages: ServiceBusMessage) -> None:
        """Send one by one."""
        for message in messages:
            await self.sender.send_messages(message)

    async def take(self, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Receive exactly `count` messages."""
        return await take(self.receiver, count)


@asynccontextmanager
async def both_ends(
    broker: Broker, *queues: str, retries: int = 0, **options: Any
) -> AsyncIterator[list[Ends]]:
    """A client of its own with both ends of each queue; `options` are the receivers'."""
    async with connect(broker, retries) as client:
        ends = [
            Ends(queue, client.get_queue_sender(queue), client.get_queue_receiver(queue, **options))
            for queue in queues
        ]
        links = [link for each in ends for link in (each.sender, each.receiver)]
        async with opened(broker, *links):
            yield ends


@asynccontextmanager
async def orders(broker: Broker, retries: int = 0, **options: Any) -> AsyncIterator[Ends]:
    """Both ends of `orders`."""
    async with both_ends(broker, "orders", retries=retries, **options) as [ends]:
        yield ends


async def take(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive exactly `count` messages."""
    taken: list[ServiceBusReceivedMessage] = []
    while len(taken) < count:
        messages = await receiver.receive_messages(count - len(taken), max_wait_time=5)
        assert messages, f"only {len(taken)} of {count} messages came"
        taken += messages
    return taken


async def nothing_waits(receiver: ServiceBusReceiver) -> bool:
    """Whether the queue offers nothing for a moment."""
    return await receiver.receive_messages(1, max_wait_time=0.2) == []


def body(message: ServiceBusReceivedMessage) -> bytes:
    """The payload in one piece."""
    return b"".join(message.body)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the broker does in its own time."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about within four seconds")
