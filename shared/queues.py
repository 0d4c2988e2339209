"""Senders to the app's queues and topics; clients are made at the first message and kept."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import azure.functions as func
from azure.core.exceptions import AzureError, ResourceNotFoundError

from .idempotency import Message, TransientFailure
from .idempotency.properties import (
    DEDUPLICATION_KEY,
    FIRST_ENQUEUED_TIME,
    OUTBOX_ORDINAL,
    RESEND_COUNT,
)
from .idempotency.telemetry import current_trace_parent
from .idempotency.triggers.event_grid import Arrived
from .idempotency.triggers.stream import StreamEvent

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
    from azure.storage.queue.aio import QueueServiceClient


MOST_SENDERS = 4
"""To one queue or topic, at the same time."""
SEND_WITHIN = 10.0
"""Seconds for one message, the SDK's own retries included."""
_CLOSE_WITHIN = 2.0
_LARGEST_TEXT = 60_000
"""Characters, all of them ASCII, in a message of a Storage queue, which may have 64 KiB."""
_PART = 36_000
"""Bytes of a larger body in one message: in base64, and with the rest of it, below that."""
_LONGEST_ID = 100
"""Characters of an order's id in a MessageId, which may have 128."""


class _Senders:
    """The SDK's senders to one queue or topic: none is used by two tasks at once, or after a failure."""

    def __init__(self, make: Callable[[], "ServiceBusSender"]) -> None:
        self._make = make
        self._idle: list[ServiceBusSender] = []
        self._free = asyncio.Semaphore(MOST_SENDERS)

    @asynccontextmanager
    async def one(self) -> "AsyncIterator[ServiceBusSender]":
        """A sender of one's own; waits while as many as there may be are in use."""
        async with self._free:
            sender = self._idle.pop() if self._idle else self._make()
            try:
                yield sender
            except BaseException:
                await _closed(sender)
                raise
            self._idle.append(sender)


async def _closed(sender: "ServiceBusSender") -> None:
    with suppress(Exception):  # it is of no use any more, whatever is wrong with it
        async with asyncio.timeout(_CLOSE_WITHIN):
            await sender.close()


class ServiceBusQueues:
    """Sends to queues and topics of one namespace; a failed send is a TransientFailure, whatever broke.

    Queues and topics share their names, and a link to send by is the same to either.
    """

    def __init__(self, connect: "Callable[[], ServiceBusClient]") -> None:
        self._connect = connect
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, _Senders] = {}

    async def send(self, destination: str, message: "ServiceBusMessage") -> None:
        """Send one message; it is accepted by the broker when this returns."""
        from azure.servicebus.exceptions import ServiceBusError

        try:
            async with asyncio.timeout(SEND_WITHIN), self._senders_to(destination).one() as sender:
                await sender.send_messages(message)
        except (ServiceBusError, AzureError, OSError, TimeoutError) as error:
            raise TransientFailure(
                f"{destination} did not accept the message ({type(error).__name__})"
            ) from error

    async def relay(self, message: Message) -> None:
        """Send a message of the outbox, under its own id and with the time it was committed at."""
        from azure.servicebus import ServiceBusMessage

        committed = datetime.fromtimestamp(message.enqueued_at, UTC)
        properties: dict[str | bytes, Any] = {
            FIRST_ENQUEUED_TIME: committed.isoformat(),
            OUTBOX_ORDINAL: message.ordinal,
        }
        properties.update(message.properties)
        if message.resends:
            properties[RESEND_COUNT] = message.resends
        if message.trace_parent:
            properties.setdefault("traceparent", message.trace_parent)
        sent = ServiceBusMessage(
            message.body,
            message_id=message.message_id,
            session_id=message.session_id,
            content_type=message.content_type,
            application_properties=properties,
        )
        await self.send(message.destination, sent)

    async def send_order(self, queue: str, order_id: str, body: bytes) -> None:
        """Send an order under its id as Deduplication-Key, and a MessageId of id and content.

        The broker's detection then drops repetitions only. Under the bare id it would also drop, without
        a trace, an order of other content, which has to end as a mismatch where a person finds it.
        """
        from azure.servicebus import ServiceBusMessage

        properties: dict[str | bytes, Any] = {DEDUPLICATION_KEY: order_id}
        # named here, not left to the SDK, which does it only where its own tracing is on
        if parent := current_trace_parent():
            properties["traceparent"] = parent
        message = ServiceBusMessage(
            body,
            message_id=f"{order_id[:_LONGEST_ID]}~{hashlib.sha256(body).hexdigest()[:24]}",
            content_type="application/json",
            application_properties=properties,
        )
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

    def _senders_to(self, destination: str) -> _Senders:
        if destination not in self._senders:
            self._senders[destination] = _Senders(lambda: self._sender_to(destination))
        return self._senders[destination]

    def _sender_to(self, destination: str) -> "ServiceBusSender":
        if self._client is None:
            self._client = self._connect()
        return self._client.get_queue_sender(destination)


class StorageQueues:
    """Sends to Azure Storage queues, which are created when missing."""

    def __init__(self, connect: "Callable[[], QueueServiceClient]", *, orders: str) -> None:
        self._connect = connect
        self._client: QueueServiceClient | None = None
        self._orders = orders

    async def send_order(self, order_id: str, body: bytes) -> None:
        """Send an order; its id is in the body, since a Storage queue knows no id of ours."""
        await self.send(self._orders, body.decode())

    async def set_aside(
        self, queue: str, message: func.QueueMessage, reason: str, description: str
    ) -> None:
        """Send a message that can never succeed to the poison queue of its own, with the reason."""
        told = {} if message.id is None else {"id": message.id}
        body = message.get_body()
        await self.set_body_aside(f"{queue}-poison", body, reason, description, **told)

    async def set_event_aside(
        self, queue: str, event: StreamEvent, reason: str, description: str
    ) -> None:
        """Send an event of a log that can never be handled, with the reason and where it lies."""
        told = {} if event.position is None else {"position": event.position}
        await self.set_body_aside(queue, event.body, reason, description, **told)

    async def set_body_aside(
        self, queue: str, body: bytes, reason: str, description: str, **told: str
    ) -> None:
        """Send a body that can never be handled, with the reason; in parts if it is a large one.

        Sent again, since one of the parts was not taken, it is there more than once, never in part only.
        """
        envelope: dict[str, Any] = {"reason": reason, "description": description, **told}
        whole = json.dumps({**envelope, **_original(body)})
        if len(whole) <= _LARGEST_TEXT:
            return await self.send(queue, whole)
        envelope |= {"sha256": hashlib.sha256(body).hexdigest()}
        parts = [body[at : at + _PART] for at in range(0, len(body), _PART)]
        for number, part in enumerate(parts, start=1):
            encoded = base64.b64encode(part).decode()
            told_of = {"part": number, "parts": len(parts), "base64": encoded}
            await self.send(queue, json.dumps({**envelope, **told_of}))
        return None

    async def send(self, queue: str, text: str) -> None:
        """Send one message; raises TransientFailure when the queue does not take it."""
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


def _original(body: bytes) -> dict[str, str]:
    """A body as it is where it is text, in base64 otherwise."""
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


type SendOrder = Callable[[str, bytes], Awaitable[None]]
