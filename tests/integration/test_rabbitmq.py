"""RabbitMQ itself, through the whole app: events come twice, cannot be read, outlive a host that dies."""

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from local.host.process import HostProcess
from local.services.azurite import Azurite
from local.services.rabbitmq import RabbitMQ, is_installed
from tests.integration.conftest import ROOT, RunningApp, running_app
from tests.integration.messages import eventually, storage_queue

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
]
QUEUE = "order-events"
DEAD = "order-events-dead"


class Shop:
    """The app, fed by RabbitMQ."""

    def __init__(self, broker: RabbitMQ, azurite: Azurite, aside: str) -> None:
        self.broker = broker
        self.aside = storage_queue(azurite.connection_string, aside)
        self.app: RunningApp

    def on_a_channel[T](self, act: Callable[[AbstractChannel], Awaitable[T]]) -> T:
        async def connected() -> T:
            connection = await aio_pika.connect(self.broker.connection_string)
            async with connection, connection.channel() as channel:
                return await act(channel)

        return asyncio.run(connected())

    def declare(self) -> None:
        async def declared(channel: AbstractChannel) -> None:
            await channel.declare_queue(DEAD, durable=True)
            to_dead: dict[str, Any] = {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": DEAD,
            }
            quorum: dict[str, Any] = {"x-queue-type": "quorum", **to_dead}
            await channel.declare_queue(QUEUE, durable=True, arguments=quorum)

        self.on_a_channel(declared)

    def publish(self, *bodies: str) -> None:
        async def published(channel: AbstractChannel) -> None:
            for body in bodies:
                message = aio_pika.Message(body.encode(), delivery_mode=2)
                await channel.default_exchange.publish(message, routing_key=QUEUE)

        self.on_a_channel(published)

    def dead(self) -> list[str]:
        async def taken(channel: AbstractChannel) -> list[str]:
            queue = await channel.get_queue(DEAD)
            found = []
            while (message := await queue.get(fail=False)) is not None:
                found.append(message.body.decode())
                await message.ack()
            return found

        return self.on_a_channel(taken)

    def entries(self, order_id: str) -> list[str]:
        answer = self.app.http.get(f"/orders/{order_id}/timeline")
        return [entry["type"] for entry in answer.json().get("entries", [])]


@pytest.fixture(scope="module")
def shop(azurite: Azurite) -> Iterator[Shop]:
    if not is_installed():
        reason = "RabbitMQ is not installed here: apt-get install rabbitmq-server"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    own = uuid.uuid4().hex[:8]
    with RabbitMQ() as broker:
        shop = Shop(broker, azurite, f"aside-{own}")
        shop.declare()
        settings = {
            "RabbitMQConnection": broker.connection_string,
            "EVENTS_ASIDE_QUEUE": f"aside-{own}",
            "RABBITMQ_HOLD_SECONDS": "0.1",
            "TIMELINES_CONTAINER": f"timelines{own}",
        }
        with running_app(azurite, **settings) as shop.app:
            yield shop


def event(order_id: str, version: int, kind: str = "OrderPlaced") -> str:
    content: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{order_id}-{version}",
        "source": "tests",
        "type": kind,
        "subject": order_id,
        "time": "2026-01-01T00:00:00Z",
        "version": version,
    }
    return json.dumps(content)


def own_id() -> str:
    return f"ord-{uuid.uuid4().hex[:10]}"


def test_given_events_that_come_again_then_each_is_told_once(shop: Shop) -> None:
    order_id = own_id()
    shop.publish(event(order_id, 1))
    eventually(lambda: shop.entries(order_id) == ["OrderPlaced"], what="the first event")
    shop.publish(event(order_id, 1), event(order_id, 1))
    shop.publish(event(order_id, 2, "OrderPaid"))
    eventually(lambda: len(shop.entries(order_id)) == 2, what="the second event")
    assert shop.entries(order_id) == ["OrderPlaced", "OrderPaid"]


def test_given_what_is_no_event_then_it_is_set_aside_with_the_reason_and_others_go_on(
    shop: Shop,
) -> None:
    order_id = own_id()
    shop.publish("{no json", '{"id": "without source"}', event(order_id, 1))
    eventually(lambda: shop.entries(order_id), what="the event behind them")

    def aside() -> list[str]:
        return [json.loads(m.content)["reason"] for m in shop.aside.peek_messages(max_messages=9)]

    eventually(lambda: len(aside()) == 2, what="two set aside")
    assert sorted(aside()) == ["MalformedJson", "MissingKey"]
    assert shop.dead() == []


def test_given_a_host_that_dies_in_the_middle_then_the_broker_hands_all_of_it_out_again(
    shop: Shop,
) -> None:
    orders = [own_id() for _ in range(20)]
    with HostProcess(ROOT, environment=shop.app.environment) as other:
        shop.publish(*(event(order_id, 1) for order_id in orders))
        eventually(
            lambda: "ingest_order_events_from_rabbitmq" in other.output, what="it takes part"
        )
        other.kill()
    eventually(
        lambda: all(shop.entries(order_id) for order_id in orders), within=60, what="all events"
    )
    assert [shop.entries(order_id) for order_id in orders] == [["OrderPlaced"]] * len(orders)
    assert shop.dead() == []
