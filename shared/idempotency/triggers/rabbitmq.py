"""The RabbitMQ trigger: a body -> delivery, outcome -> done, tried again, or set aside.

`settling` says which outcome is settled how. The trigger hands over a body and nothing else, so the key
is in the body, and nobody tells whether a message came before. What a function fails at the host puts into
its queue again at once, five times, and then rejects: give the queue a dead-letter exchange. The trigger
runs on Premium and Dedicated plans only, and so does this.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..clock import Clock, SystemClock
from ..fingerprint import Fingerprint, canonical_json
from ..protected import Protected
from ..records import Delivery
from .body_keys import KeyOf
from .pacing import Pacing
from .protecting import Handler
from .settling import settle

_PACING = Pacing(first=30.0, longest=30.0)
"""Six deliveries, and nobody tells which of them it is: so that a store may be away for two minutes, each is
held as long, 22.5 seconds at least."""
_log = logging.getLogger("idempotency.rabbitmq")

type SetAside = Callable[[bytes, str, str], Awaitable[None]]
"""Keeps a body with the reason and its description, where a person finds it."""

type Decorator = Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, None]]]


def idempotent(
    consumer: Protected,
    *,
    key: KeyOf,
    set_aside: SetAside,
    fingerprint: Fingerprint | None = canonical_json,
    pacing: Pacing = _PACING,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a handler behind `generic_trigger(type="rabbitMQTrigger")`; stands below it.

    The handler takes the body as bytes, and nothing else. The trigger's ``arg_name`` is ``message``, its
    ``data_type`` BINARY: as text, two bodies that are no UTF-8 could become one.
    """
    time = clock or SystemClock()

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, bytes)
        codec = handler.codec()

        async def protected(message: bytes | str) -> None:
            body = message.encode() if isinstance(message, str) else message
            incoming = _Body(body, key, fingerprint, set_aside)
            work = handler.work((body,), {})
            await settle(consumer, incoming, work, codec, pacing=pacing, clock=time)

        return handler.expose_instead(protected, message=bytes, returns=None)

    return protect


class _Body:
    """A message of which there is only the body."""

    delivery_count = None  # the trigger does not tell

    def __init__(
        self, body: bytes, key: KeyOf, fingerprint: Fingerprint | None, set_aside: SetAside
    ) -> None:
        self._body = body
        self._key = key
        self._fingerprint = fingerprint
        self._set_aside = set_aside

    def delivery(self) -> Delivery:
        return Delivery(
            key=self._key(self._body),
            fingerprint=self._fingerprint(self._body) if self._fingerprint else None,
            trigger="rabbitmq",
            body=self._body,
        )

    async def acknowledge(self) -> None:
        """The host acknowledges when the invocation succeeds."""

    async def set_aside(self, reason: str, description: str) -> None:
        await self._set_aside(self._body, reason, description)
        _log.error("a message was set aside: %s: %s", reason, description)

    def give_back(self, error: Exception) -> None:
        raise error
