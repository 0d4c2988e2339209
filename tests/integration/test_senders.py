"""What the app sends by, against the broker with the SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from local.servicebus import Broker
from shared.idempotency import Message, TransientFailure
from shared.queues import MOST_SENDERS, ServiceBusQueues

pytestmark = pytest.mark.integration
EMAIL = "order-events/subscriptions/email"


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[tuple[ServiceBusQueues, "Counted"]]:
    async with ServiceBusClient.from_connection_string(
        broker.connection_string, retry_total=0
    ) as client:
        counted = Counted(client)
        yield ServiceBusQueues(lambda: counted), counted  # type: ignore[arg-type, return-value]


class Counted:
    """The client, and how many senders it has made."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self.made = 0

    def get_queue_sender(self, name: str) -> Any:
        self.made += 1
        return self._client.get_queue_sender(name)


def a_message(ordinal: int = 1, **fields: Any) -> Message:
    return Message(
        destination="order-events",
        message_id=f"id-{ordinal}",
        ordinal=ordinal,
        body=b'{"n": 1}',
        properties={"event-type": "OrderPlaced"},
        session_id="ord-1",
        trace_parent="00-11-22-01",
        enqueued_at=1_700_000_000.0,
        **fields,
    )


async def test_given_a_message_of_the_outbox_when_it_is_relayed_then_a_topic_has_it_as_it_was_committed(
    broker: Broker,
) -> None:
    async with connected(broker) as (queues, _):
        await queues.relay(a_message())
        await queues.relay(a_message(2, resends=3))

    first, second = broker.messages(EMAIL)
    assert (first.message_id, first.body) == ("id-1", b'{"n": 1}')
    assert first.application_properties == {
        "event-type": "OrderPlaced",
        "First-Enqueued-Time": "2023-11-14T22:13:20+00:00",
        "Outbox-Ordinal": 1,
        "traceparent": "00-11-22-01",
    }
    assert second.application_properties["Resend-Count"] == 3


async def test_given_a_repeat_when_it_is_relayed_then_the_broker_drops_it(broker: Broker) -> None:
    async with connected(broker) as (queues, _):
        await queues.relay(a_message())
        await queues.relay(a_message(resends=1))

    assert len(broker.messages(EMAIL)) == 1


async def test_given_fifty_at_once_when_they_are_sent_then_all_arrive_by_a_few_senders(
    broker: Broker,
) -> None:
    async with connected(broker) as (queues, client):
        await asyncio.gather(*(queues.relay(a_message(n)) for n in range(1, 51)))
        made = client.made
        await asyncio.gather(*(queues.relay(a_message(n)) for n in range(51, 101)))

    assert len(broker.messages(EMAIL)) == 100
    assert made == client.made == MOST_SENDERS, "kept, and used again"


async def test_given_a_connection_that_dropped_when_it_is_sent_again_then_it_goes_by_another_sender(
    broker: Broker,
) -> None:
    async with connected(broker) as (queues, client):
        await queues.relay(a_message())
        broker.drop_connections()
        told = [await _arrives(queues, ordinal) for ordinal in (2, 3)]

    assert told[1], "at most the first finds the connection gone"
    assert client.made == (1 if told[0] else 2)
    assert broker.messages(EMAIL)[-1].message_id == "id-3"


async def _arrives(queues: ServiceBusQueues, ordinal: int) -> bool:
    try:
        await queues.relay(a_message(ordinal))
    except TransientFailure:
        return False
    return True


async def test_given_no_such_entity_when_it_is_sent_to_then_the_failure_is_transient_and_names_it(
    broker: Broker,
) -> None:
    """Whoever deploys may yet make it: the message stays pending."""
    async with connected(broker) as (queues, _):
        with pytest.raises(TransientFailure, match="no-such-queue"):
            await queues.send("no-such-queue", ServiceBusMessage(b"{}"))
        await queues.relay(a_message())

    assert len(broker.messages(EMAIL)) == 1
