"""Senders to the app's queues; clients are made at the first message and kept."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import azure.functions as func
from azure.core.exceptions import AzureError, ResourceNotFoundError

from .idempotency import TransientFailure
from .idempotency.properties import FIRST_ENQUEUED_TIME
from .idempotency.triggers.event_grid import Arrived

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient
    from azure.storage.queue.aio import QueueServiceClient


class ServiceBusQueues:
    """Sends to queues of one namespace; a failed send is a TransientFailure, whatever broke."""

    def __init__(self, connect: "Callable[[], ServiceBusClient]") -> None:
        self._connect = connect
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, Any] = {}
        self._order = asyncio.Lock()

    async def send(self, queue: str, message: "ServiceBusMessage") -> None:
        """Send one message; it is accepted by the broker when this returns."""
        from azure.servicebus.exceptions import ServiceBusError

        async with self._order:  # a sender is not safe for concurrent use
            try:
                await self._sender(queue).send_messages(message)
            except (ServiceBusError, AzureError, OSError, TimeoutError) as error:
                self._senders.pop(queue, None)
                raise TransientFailure(
                    f"queue {queue} did not accept the message ({type(error).__name__})"
                ) from error

    async def send_order(self, queue: str, order_id: str, body: bytes) -> None:
        """Send an order under its own id, so that the broker's detection knows it too."""
        from azure.servicebus import ServiceBusMessage

        message = ServiceBusMessage(body, message_id=order_id, content_type="application/json")
        await self.send(queue, message)

    async def send_fulfilment(self, queue: str, order_id: str) -> None:
        """Ask for an order to be fulfilled; every repetition is the same message."""
        await self.send_order(queue, order_id, json.dumps({"order_id": order_id}).encode())

    async def quarantine_event(
        self, queue: str, event: Arrived, reason: str, description: str
    ) -> None:
        """Send an event of Event Grid's that can never be handled, with the reason beside it."""
        from azure.servicebus import ServiceBusMessage

        body = json.dumps(event.to_dict(), default=str).encode()
        properties: dict[str | bytes, Any] = {
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": description,
        }
        message = ServiceBusMessage(
            body, content_type="application/json", application_properties=properties
        )
        await self.send(queue, message)

    async def quarantine(
        self, queue: str, original: func.ServiceBusMessage, reason: str, description: str
    ) -> None:
        """Send a copy of a message that can never succeed, with the reason beside it."""
        from azure.servicebus import ServiceBusMessage

        properties: dict[str | bytes, Any] = {}
        properties.update(original.application_properties or {})
        properties["DeadLetterReason"] = reason
        properties["DeadLetterErrorDescription"] = description
        if original.enqueued_time_utc is not None:
            # the copy is enqueued anew, but it is as old as its original
            properties.setdefault(FIRST_ENQUEUED_TIME, original.enqueued_time_utc.isoformat())
        message = ServiceBusMessage(
            original.get_body(),
            message_id=original.message_id,
            correlation_id=original.correlation_id,
            content_type=original.content_type,
            application_properties=properties,
        )
        await self.send(queue, message)

    def _sender(self, queue: str) -> Any:
        if self._client is None:
            self._client = self._connect()
        if queue not in self._senders:
            self._senders[queue] = self._client.get_queue_sender(queue)
        return self._senders[queue]


class StorageQueues:
    """Sends to Azure Storage queues, which are created when missing."""

    def __init__(self, connect: "Callable[[], QueueServiceClient]", *, orders: str) -> None:
        self._connect = connect
        self._client: QueueServiceClient | None = None
        self._orders = orders

    async def send_order(self, order_id: str, body: bytes) -> None:
        """Send an order; its id is in the body, since a Storage queue knows no id of ours."""
        await self._send(self._orders, body.decode())

    async def set_aside(self, message: func.QueueMessage, reason: str, description: str) -> None:
        """Send a message that can never succeed to the poison queue, with the reason.

        The text is kept as it is where it is text, in base64 otherwise.
        """
        body = message.get_body()
        try:
            original = {"text": body.decode()}
        except UnicodeDecodeError:
            original = {"base64": base64.b64encode(body).decode()}
        envelope = {"reason": reason, "description": description, "id": message.id, **original}
        await self._send(f"{self._orders}-poison", json.dumps(envelope))

    async def _send(self, queue: str, text: str) -> None:
        if self._client is None:
            self._client = self._connect()
        client = self._client.get_queue_client(queue)
        try:
            try:
                await client.send_message(text)
            except ResourceNotFoundError:
                await client.create_queue()
                await client.send_message(text)
        except (AzureError, OSError, TimeoutError) as error:
            raise TransientFailure(
                f"storage queue {queue} did not accept the message ({type(error).__name__})"
            ) from error


type SendOrder = Callable[[str, bytes], Awaitable[None]]
