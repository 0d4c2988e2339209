"""Service Bus messages, many per invocation: each is handled and settled by itself.

The handler takes one message, as with `service_bus`; the worker hands the wrapper a list. What is
different in a batch, and what is done about it:

- Azure's host drops the empty entries of arrays of texts, so that ids line up with other bodies where one
  message has none. Keys are read from bodies, therefore, and of all texts beside them a message keeps
  its lock token alone, which none is without: what could be another message's is None.
- Without a data type the host parses the bodies as JSON, and one that is none fails all of the batch
  before it gets here; of type string, an empty one does. The trigger must ask for bytes.
- Locks are not renewed. A message is not begun once less than half of its lock is left, and nobody waits
  under a lock for an attempt in flight: it is left, and comes back.
- Two messages of one key are handled one after the other: the second is a duplicate of the first.
- What one message raises concerns no other. It is logged, and the message left until its lock ends; an
  exception would make the host abandon all that are not settled.
"""

import asyncio
import logging
import typing
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any

import azure.functions as func
import msgspec
from azure.functions.servicebus import ServiceBusMessage

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, DeliveryRejected, StoreUnavailable, TransientFailure
from ..fingerprint import Fingerprint, canonical_json
from ..protected import Protected
from ..records import Delivery
from ..results import ResultCodec
from .body_keys import KeyOf
from .pacing import Pacing
from .protecting import Handler
from .service_bus import LockedMessage, Settlement, to_delivery
from .settling import settle

__all__ = ["idempotent"]

_log = logging.getLogger("idempotency.service_bus_batch")
_AT_ONCE = Pacing(first=0.0, longest=0.0)
"""A message is not held by itself: the batch is, once, after all others are settled."""

type Decorator = Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, None]]]


def idempotent(
    consumer: Protected,
    *,
    key: KeyOf,
    settlement: Settlement,
    fingerprint: Fingerprint | None = canonical_json,
    lock: float = 60.0,
    concurrency: int = 16,
    pacing: Pacing | None = None,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a handler of single messages behind a trigger of ``cardinality`` many.

    Stands below the trigger decorator, whose ``arg_name`` is ``messages``, whose ``data_type`` is BINARY,
    and whose ``auto_complete_messages`` must be ``settlement.auto_complete``. Not for sessions: what comes
    back would be overtaken. ``lock``: the lock duration of the
    queue or subscription, in seconds. ``concurrency``: how many messages of a batch are handled at the
    same time. With a settlement that completes automatically, one message that must come back brings the
    whole batch back; the others are duplicates then, and nothing of them runs again.
    """
    if concurrency < 1 or not lock > 0:
        raise ConfigurationError(f"{consumer.name}: concurrency and lock must be above 0")
    time = clock or SystemClock()

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, func.ServiceBusMessage)
        codec = handler.codec()

        async def protected(
            messages: Sequence[func.ServiceBusMessage], actions: Any = None
        ) -> None:
            if settlement.actions_type and actions is None:
                raise ConfigurationError(
                    f"{handler.name} was called without actions=: nothing ran, since its messages could "
                    "not be settled. The worker fills it in on Python 3.13 and later"
                )
            batch = _Batch(consumer, handler, codec, settlement, actions, time, lock / 2)
            returning = await batch.handled(
                [_Message(each, key, fingerprint) for each in messages], concurrency
            )
            if returning:
                await time.sleep((pacing or Pacing()).hold(returning.delivery_count))
                settlement.give_back(returning.why)

        shown: dict[str, Any] = {"messages": typing.List[func.ServiceBusMessage]}  # noqa: UP006 - all the worker knows
        if settlement.actions_type:
            shown["actions"] = settlement.actions_type
        return handler.expose_instead(protected, returns=None, **shown)

    return protect


class _Returning(msgspec.Struct, frozen=True):
    """Some messages come back: why, and how often the one that came most often was handed out."""

    why: str
    delivery_count: int


class _Message:
    """One message of a batch; what cannot be told of it is kept until it is asked for."""

    def __init__(
        self, message: func.ServiceBusMessage, key: KeyOf, fingerprint: Fingerprint | None
    ) -> None:
        self.message = _in_line(message)
        self._delivery: Delivery | DeliveryRejected
        try:
            self._delivery = to_delivery(self.message, fingerprint, key)
        except DeliveryRejected as error:
            self._delivery = error

    def delivery(self) -> Delivery:
        if isinstance(self._delivery, DeliveryRejected):
            raise self._delivery
        return self._delivery

    @property
    def key(self) -> str | None:
        return self._delivery.key if isinstance(self._delivery, Delivery) else None


def _in_line(message: func.ServiceBusMessage) -> func.ServiceBusMessage:
    """A message with nothing but what is surely its own."""
    return ServiceBusMessage(
        body=message.get_body(),
        message_id=None,  # type: ignore[arg-type]  # as of a message that has none
        application_properties=message.application_properties,
        user_properties=message.application_properties,
        delivery_count=message.delivery_count,
        enqueued_time_utc=message.enqueued_time_utc,
        expires_at_utc=message.expires_at_utc,
        lock_token=message.lock_token,
        sequence_number=message.sequence_number,
    )


class _Batch:
    """One invocation's messages on their way."""

    def __init__(
        self,
        consumer: Protected,
        handler: Handler,
        codec: ResultCodec[Any],
        settlement: Settlement,
        actions: Any,
        clock: Clock,
        begin_within: float,
    ) -> None:
        self._consumer = consumer
        self._handler = handler
        self._codec = codec
        self._settlement = settlement
        self._actions = actions
        self._clock = clock
        self._begin_until = clock.monotonic() + begin_within
        self._store_is_down = False
        self._returning: list[_Returning] = []

    async def handled(self, messages: Sequence[_Message], concurrency: int) -> _Returning | None:
        """Handle all of them, those of one key in order; what must come back, if anything."""
        slots = asyncio.Semaphore(concurrency)
        without_key = count()
        lines: dict[str | int, list[_Message]] = {}
        for message in messages:
            lines.setdefault(message.key or next(without_key), []).append(message)

        async def line(of_one_key: Sequence[_Message]) -> None:
            async with slots:
                for message in of_one_key:
                    await self._settled(message)

        await asyncio.gather(*map(line, lines.values()))
        return max(self._returning, key=lambda each: each.delivery_count, default=None)

    async def _settled(self, message: _Message) -> None:
        """Handle and settle one; whatever becomes of it, the others go on."""
        if self._store_is_down:
            return self._comes_back(message, "the store is down")
        if self._clock.monotonic() > self._begin_until:
            return self._comes_back(message, "too little of its lock was left to begin")
        incoming = _Incoming(message, self._actions, self._settlement)
        try:
            await settle(
                self._consumer,
                incoming,
                self._handler.work((message.message,), {}),
                self._codec,
                pacing=_AT_ONCE,
                clock=self._clock,
                wait=0.0,
            )
        except (StoreUnavailable, TransientFailure) as error:
            # never back to False: a neighbour that is merely not done now says nothing of the store
            self._store_is_down |= isinstance(error, StoreUnavailable)
            self._comes_back(message, str(error))
        except Exception as error:  # noqa: BLE001 - logged; the message comes back
            _log.error("%s: a message of the batch failed", self._consumer.name, exc_info=error)
            self._comes_back(message, f"{type(error).__name__}: {error}")

    def _comes_back(self, message: _Message, why: str) -> None:
        self._returning.append(_Returning(why, message.message.delivery_count or 1))


class _Incoming(LockedMessage):
    """A message of a batch under its lock; given back, it raises what the batch notes."""

    def __init__(self, message: _Message, actions: Any, settlement: Settlement) -> None:
        super().__init__(message.message, actions, settlement, message.delivery)

    def give_back(self, error: Exception) -> None:
        raise error
