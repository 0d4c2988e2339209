"""The producers: Service Bus, Storage queue and HTTP clients that send what the plan says."""

import http.client
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.queue import QueueClient

from local.demo.events import FULFILMENT
from local.demo.stage import QUEUE, Stage
from local.demo.traffic import Message, batches


class NotAccepted(RuntimeError):
    """An HTTP request was not answered with 202."""


class Producer:
    """Sends to the stage's queues, with the unmodified SDKs."""

    def __init__(self, stage: Stage) -> None:
        self.sent = 0
        """Messages that Service Bus has accepted, or dropped as duplicates."""
        self._client = ServiceBusClient.from_connection_string(stage.broker.connection_string)
        self._sender = self._client.get_queue_sender(QUEUE)
        self._fulfilment = self._client.get_queue_sender(FULFILMENT)
        self._storage = QueueClient.from_connection_string(stage.azurite.connection_string, QUEUE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sender.close()
        self._fulfilment.close()
        self._client.close()
        self._storage.close()

    def send(self, messages: Sequence[Message]) -> None:
        """Send to the Service Bus queue, in batches of the broker's."""
        for batch in batches(tuple(messages)):
            self._sender.send_messages([_encoded(message) for message in batch])
            self.sent += len(batch)

    def ask_for_fulfilment(self, messages: Sequence[Message]) -> None:
        """Send to the queue of orders that are to be shipped."""
        for batch in batches(tuple(messages)):
            self._fulfilment.send_messages([_encoded(message) for message in batch])

    def send_through_storage_queue(self, message: Message) -> None:
        """Send to the Storage queue, which knows no id: the order's is in its body."""
        self._storage.send_message(message.body.decode())

    def left_in_storage_queue(self) -> int:
        """Messages that wait there or are being handled."""
        return self._storage.get_queue_properties().approximate_message_count or 0

    def submit(self, message: Message, base_url: str, idempotency_key: str) -> bool:
        """Post an order; whether the answer is one that was recorded for an earlier request.

        Raises NotAccepted.
        """
        address = urlsplit(base_url)
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        try:
            headers = {
                "Content-Type": "application/json",
                "Idempotency-Key": idempotency_key,
            }
            connection.request("POST", "/api/orders", message.body, headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.HTTPStatus.ACCEPTED:
                raise NotAccepted(f"POST /api/orders: {response.status}: {body[:200]!r}")
            return response.getheader("Idempotent-Replayed") == "true"
        finally:
            connection.close()


def _encoded(message: Message) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {}
    if message.deduplication_key is not None:
        properties["Deduplication-Key"] = message.deduplication_key
    encoded = ServiceBusMessage(
        message.body, content_type="application/json", application_properties=properties
    )
    # Set afterwards: the constructor makes one up where it is given none.
    encoded.message_id = message.message_id
    return encoded
