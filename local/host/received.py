"""A Service Bus message under lock: its settlement, its lock, and what the worker is told of it."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSession
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    SessionLockLostError,
)

from .inputs import Input, service_bus_message

log = logging.getLogger("local.host")

LOST = (MessageLockLostError, SessionLockLostError, MessageAlreadySettled)
NEVER = datetime.max.replace(tzinfo=UTC)


class ReceivedMessage:
    """A message under lock, with the receiver that holds it.

    Settlement and renewal raise what the SDK raises: a lost lock, an earlier settlement, a broker
    out of reach. `settled` is true once the broker has confirmed a settlement.
    """

    def __init__(self, message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
        self.message = message
        self.token = str(message.lock_token)
        # None for a receiver without sessions, whatever the SDK's annotation says.
        session: ServiceBusSession | None = receiver.session
        self.session_id = message.session_id if session else None
        self.settled = False
        self._receiver = receiver

    async def complete(self) -> None:
        await self._settle(self._receiver.complete_message(self.message))

    async def abandon(self) -> None:
        await self._settle(self._receiver.abandon_message(self.message))

    async def dead_letter(self, reason: str | None, description: str | None) -> None:
        await self._settle(
            self._receiver.dead_letter_message(
                self.message, reason=reason, error_description=description
            )
        )

    async def defer(self) -> None:
        await self._settle(self._receiver.defer_message(self.message))

    async def renew(self) -> None:
        """Renew the lock of the message, or of its session where it has one."""
        if self.session_id is None:
            await self._receiver.renew_message_lock(self.message)
        else:
            await self._receiver.session.renew_lock()

    async def session_state(self) -> bytes:
        return bytes(await self._receiver.session.get_state() or b"")

    async def set_session_state(self, state: bytes) -> None:
        await self._receiver.session.set_state(state or None)

    async def renew_session(self) -> float:
        """Renew the session's lock; answers until when, in seconds since 1970."""
        return (await self._receiver.session.renew_lock()).timestamp()

    async def keep_locked(self, longest: float) -> None:
        """Renew the lock shortly before it ends, for as many seconds or until it is lost."""
        last = time.monotonic() + longest
        while True:
            left = (self._locked_until() - datetime.now(UTC)).total_seconds()
            pause = max(left - min(left / 2, 10.0), 0.2)
            if time.monotonic() + pause > last:
                return
            await asyncio.sleep(pause)
            try:
                await self.renew()
            except LOST as error:
                log.warning("message %s: lock not renewed: %s", self.message.message_id, error)
                return
            except Exception as error:  # noqa: BLE001 - the broker may be back for the next try
                log.warning("message %s: lock not renewed: %s", self.message.message_id, error)

    def _locked_until(self) -> datetime:
        held = self.message if self.session_id is None else self._receiver.session
        return held.locked_until_utc or NEVER

    async def _settle(self, action: Awaitable[None]) -> None:
        await action
        self.settled = True


def message_input(message: ServiceBusReceivedMessage, *, binary: bool) -> Input:
    """The message in the form in which the worker gets it."""
    return service_bus_message(
        message_body(message),
        message_id=_optional_text(message.message_id),
        # The broker counts failed deliveries before this one, Azure's host counts this one too.
        delivery_count=(message.delivery_count or 0) + 1,
        lock_token=str(message.lock_token),
        sequence_number=message.sequence_number or 0,
        enqueued_time=message.enqueued_time_utc,
        expires_at=message.expires_at_utc or NEVER,
        correlation_id=_optional_text(message.correlation_id),
        content_type=message.content_type,
        subject=message.subject,
        to=message.to,
        reply_to=message.reply_to,
        partition_key=message.partition_key,
        session_id=message.session_id,
        reply_to_session_id=message.reply_to_session_id,
        dead_letter_source=message.dead_letter_source,
        application_properties=message.application_properties,
        binary=binary,
    )


def message_body(message: ServiceBusReceivedMessage) -> bytes:
    """The body's bytes; a value or sequence body, which no Azure sender makes, as JSON."""
    body: Any = message.body
    if message.body_type == AmqpMessageBodyType.DATA:
        return b"".join(bytes(section) for section in body or ())
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if body is None:
        return b""
    value = list(body) if message.body_type == AmqpMessageBodyType.SEQUENCE else body
    return json.dumps(value, default=str).encode()


def message_trace_parent(message: ServiceBusReceivedMessage) -> str | None:
    """The trace context the sender put into the message's properties, if it did."""
    properties: Any = message.application_properties or {}
    for name in ("Diagnostic-Id", "traceparent"):
        value = properties.get(name.encode(), properties.get(name))
        if value:
            return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return None


def _optional_text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
