"""Azure Storage queue messages: message -> delivery, outcome -> delete, reappear or poison queue.

`settling` says which outcome is settled how. A Storage queue knows no id of the producer's: a re-send
is a new message, so the key is a business key from the body. Deleting is what the host does when the
invocation succeeds; an exception lets the message reappear after host.json's `visibilityTimeout`.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, NamedTuple

import azure.functions as func

from ..clock import Clock, SystemClock
from ..fingerprint import Fingerprint, canonical_json
from ..keys import checked
from ..protected import Protected
from ..records import Delivery
from .body_keys import KeyOf, json_key
from .pacing import Pacing
from .protecting import Decorator, Handler
from .settling import settle

__all__ = ["KeyOf", "PoisonQueue", "idempotent", "json_key", "to_delivery"]

_log = logging.getLogger("idempotency.storage_queue")


class OfMessage(NamedTuple):
    """A key that takes more than the body: the message's own id, where each is a request of its own."""

    read: Callable[[func.QueueMessage], str]


type PoisonQueue = Callable[[func.QueueMessage, str, str], Awaitable[None]]
"""Sends a message to the poison queue with the reason and its description."""


def idempotent(
    consumer: Protected,
    *,
    key: KeyOf | OfMessage,
    poison_queue: PoisonQueue,
    fingerprint: Fingerprint | None = canonical_json,
    pacing: Pacing | None = None,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a Storage queue handler; stands below the trigger decorator.

    ``poison_queue`` is told of what can never succeed, before the original is deleted: at least once.
    """
    pace = pacing or Pacing()
    time = clock or SystemClock()

    def protect[**P](function: Callable[P, object]) -> Callable[P, Coroutine[Any, Any, None]]:
        handler = Handler(function, func.QueueMessage)
        codec = handler.codec()

        async def protected(*args: P.args, **kwargs: P.kwargs) -> None:
            message = _Dequeued(handler.message(args, kwargs), key, fingerprint, poison_queue)
            work = handler.work(args, kwargs)
            await settle(consumer, message, work, codec, pacing=pace, clock=time)

        return handler.expose(protected, returns=None)

    return protect


class _Dequeued:
    """A message that is invisible to others until the host deletes it, or lets it reappear."""

    def __init__(
        self,
        message: func.QueueMessage,
        key: KeyOf | OfMessage,
        fingerprint: Fingerprint | None,
        poison_queue: PoisonQueue,
    ) -> None:
        self._message = message
        self._key = key
        self._fingerprint = fingerprint
        self._poison_queue = poison_queue

    @property
    def delivery_count(self) -> int | None:
        return self._message.dequeue_count

    def delivery(self) -> Delivery:
        return to_delivery(self._message, self._key, self._fingerprint)

    async def acknowledge(self) -> None:
        """The host deletes when the invocation succeeds."""

    async def set_aside(self, reason: str, description: str) -> None:
        await self._poison_queue(self._message, reason, description)
        _log.error(
            "message %s moved to the poison queue: %s: %s", self._message.id, reason, description
        )

    def give_back(self, error: Exception) -> None:
        raise error


def to_delivery(
    message: func.QueueMessage, key: KeyOf | OfMessage, fingerprint: Fingerprint | None
) -> Delivery:
    """What the consumer needs to know of a message; raises DeliveryRejected when it cannot be told."""
    body = message.get_body()
    inserted = message.insertion_time
    return Delivery(
        key=checked(key.read(message)) if isinstance(key, OfMessage) else key(body),
        fingerprint=fingerprint(body) if fingerprint else None,
        trigger="storage_queue",
        redelivered=(message.dequeue_count or 1) > 1,
        delivery_count=message.dequeue_count,
        sent_at=_utc(inserted).timestamp() if inserted else None,
        body=body,
    )


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
