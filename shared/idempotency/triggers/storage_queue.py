"""Azure Storage queue messages: message -> delivery, outcome -> delete, reappear or poison queue.

A Storage queue knows no id of the producer's: a re-send is a new message, so the key is a business
key from the body. Deleting is what the host does when the invocation succeeds; an exception lets the
message reappear after host.json's `visibilityTimeout`.
"""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import azure.functions as func
import msgspec

from ..clock import Clock, SystemClock
from ..consumer import Protected
from ..errors import DeliveryRejected, MalformedContent, StoreUnavailable, TransientFailure
from ..fingerprint import Fingerprint, canonical_json
from ..keys import checked
from ..records import Delivery, Outcome
from ..running import as_work
from .pacing import Pacing
from .protecting import Handler

_ACKNOWLEDGED = (Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE)
_log = logging.getLogger("idempotency.storage_queue")

type KeyOf = Callable[[bytes], str]
"""Reads the business key out of a body; raises DeliveryRejected when there is none."""

type PoisonQueue = Callable[[func.QueueMessage, str, str], Awaitable[None]]
"""Sends a message to the poison queue with the reason and its description."""

type Decorator = Callable[[Callable[..., Any]], Callable[..., Awaitable[None]]]


def json_key(field: str) -> KeyOf:
    """A business key from a top-level field of a JSON object, which must be text."""

    def read(body: bytes) -> str:
        if not body:
            raise MalformedContent("the body is empty", reason="EmptyBody")
        try:
            content = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedContent(
                f"the body is not JSON: {error}", reason="MalformedJson"
            ) from error
        value = content.get(field) if isinstance(content, dict) else None
        return checked(value if isinstance(value, str) else None, what=f"{field!r} in its body")

    return read


def idempotent(
    consumer: Protected,
    *,
    key: KeyOf,
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

    def protect(function: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        handler = Handler(function)
        codec = handler.codec()

        @functools.wraps(function)
        async def protected(*args: Any, **kwargs: Any) -> None:
            message: func.QueueMessage = handler.message(args, kwargs)
            try:
                delivery = to_delivery(message, key, fingerprint)
                work = as_work(function, *args, **kwargs)
                handled = await consumer.handle(delivery, work, codec)
            except DeliveryRejected as error:
                return await _set_aside(message, poison_queue, error.reason, str(error))
            except (StoreUnavailable, TransientFailure) as error:
                at_least = error.retry_after or 0.0
                await time.sleep(pace.hold(message.dequeue_count, at_least=at_least))
                raise
            if handled.outcome is Outcome.IN_FLIGHT:
                await time.sleep(pace.hold(message.dequeue_count))
                raise TransientFailure(f"{consumer.name}: another attempt is still in flight")
            if handled.outcome in _ACKNOWLEDGED and not handled.failed:
                return None
            return await _set_aside(message, poison_queue, handled.reason, handled.description)

        return protected

    return protect


def to_delivery(
    message: func.QueueMessage, key: KeyOf, fingerprint: Fingerprint | None
) -> Delivery:
    """What the consumer needs to know of a message; raises DeliveryRejected when it cannot be told."""
    body = message.get_body()
    inserted = message.insertion_time
    return Delivery(
        key=key(body),
        fingerprint=fingerprint(body) if fingerprint else None,
        trigger="storage_queue",
        redelivered=(message.dequeue_count or 1) > 1,
        delivery_count=message.dequeue_count,
        sent_at=inserted.timestamp() if inserted else None,
        body=body,
    )


async def _set_aside(
    message: func.QueueMessage, poison_queue: PoisonQueue, reason: str, description: str
) -> None:
    _log.error("message %s moved to the poison queue: %s: %s", message.id, reason, description)
    await poison_queue(message, reason, description)
