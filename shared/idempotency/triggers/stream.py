"""Events of a log that is read from a checkpoint on, such as Event Hubs' and Kafka's: what settles what.

==========================================  ====================================================
outcome                                     what becomes of the event
==========================================  ====================================================
processed, duplicate of success, stale      nothing: the log goes on
mismatch, missing key, malformed            set aside with the reason, and the log goes on
failed, duplicate of failure, quarantined,  set aside with the reason, and the log goes on
too old
in flight; store down; transient            the batch is raised: the host tries it again
any other exception                         the same; set aside once it was tried often enough
==========================================  ====================================================

There is no settling of single events: there is one checkpoint. A batch that is tried again is handed out
whole, and what was done of it is a duplicate then. So is everything when a reader starts from an old
checkpoint. Without a retry policy the host takes a failed batch for done and its events are lost: give
the function one, without an end (``max_retry_count="-1"``).

Events with the same ``line`` (the partition key, Kafka's message key) are handled in their order, and none of
them after one that has to be tried again. Different lines run at the same time.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import DeliveryRejected, MissingKey, StoreUnavailable, TransientFailure
from ..fingerprint import Fingerprint
from ..keys import checked, joined
from ..protected import Protected
from ..records import Delivery
from ..results import ResultCodec
from .body_keys import KeyOf
from .pacing import Pacing
from .settling import settle
from .trace_context import trace_parent

_log = logging.getLogger("idempotency.stream")
_NO_HOLD = Pacing(first=0.0, longest=0.0)
"""The host's retry policy says when a batch comes again."""


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a log, whichever.

    ``line``: what the producer keeps in order, if it said so. ``position``: where the event lies, as text:
    it names the log, its partition and the place in it; None where the host did not tell. ``sent_at``: in
    seconds since the epoch.
    """

    body: bytes
    position: str | None
    line: str | None = None
    properties: dict[str, Any] = {}
    sent_at: float | None = None

    def __repr__(self) -> str:
        """Without the body."""
        return f"StreamEvent(position={self.position!r}, body of {len(self.body)} bytes)"


type EventKey = Callable[[StreamEvent], str]
"""Reads the business key of an event; raises DeliveryRejected when there is none."""

type SetAside = Callable[[StreamEvent, str, str], Awaitable[None]]
"""Keeps an event with the reason and its description, where a person finds it."""


def in_body(key: KeyOf) -> EventKey:
    """A business key in the body, as `json_key` reads it."""
    return lambda event: key(event.body)


def in_property(name: str) -> EventKey:
    """A business key in a property of the event, or a header of Kafka's."""

    def read(event: StreamEvent) -> str:
        value = event.properties.get(name)
        told = isinstance(value, str | int) and not isinstance(value, bool)
        return checked(str(value) if told else None, what=f"property {name!r}")

    return read


def in_line(event: StreamEvent) -> str:
    """The partition key, or Kafka's message key, where each event has one of its own."""
    return checked(event.line, what="message key")


def by_position(event: StreamEvent) -> str:
    """Where the event lies, for producers that give nothing else.

    Recognises an event that is *read* again. One that was *sent* again lies elsewhere: it runs again.
    """
    return joined("position", checked(event.position, what="position that the host tells"))


class Stream:
    """One function's way with the batches it is handed."""

    def __init__(
        self,
        consumer: Protected,
        key: EventKey,
        set_aside: SetAside,
        fingerprint: Fingerprint | None,
        clock: Clock,
        *,
        trigger: str,
        tries: int,
        concurrency: int,
    ) -> None:
        """``tries``: after how many an event whose handler fails for no known reason is set aside."""
        self._consumer = consumer
        self._key = key
        self._set_aside = set_aside
        self._fingerprint = fingerprint
        self._clock = clock
        self._trigger = trigger
        self._tries = tries
        self._concurrency = concurrency

    async def handled(
        self,
        events: Sequence[StreamEvent],
        work: Callable[[StreamEvent], Callable[[], Awaitable[Any]]],
        codec: ResultCodec[Any],
        *,
        tried: int,
    ) -> None:
        """Handle a batch, that was tried ``tried`` times before; raises what it has to be tried again for."""
        slots = asyncio.Semaphore(self._concurrency)
        lines: dict[str | None, list[StreamEvent]] = {}
        for event in events:
            lines.setdefault(event.line, []).append(event)
        store_is_down = asyncio.Event()
        # copies of one event may be in two lines: they are handled one after the other
        turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

        async def line(in_order: Sequence[StreamEvent]) -> Exception | None:
            async with slots:
                for event in in_order:
                    if store_is_down.is_set():
                        return StoreUnavailable(
                            "the store is down: the rest is left for the next try"
                        )
                    async with turns[self._turn(event)]:
                        error = await self._tried(event, work(event), codec, tried)
                    if error is not None:
                        if isinstance(error, StoreUnavailable):
                            store_is_down.set()
                        return error
            return None

        ended = await asyncio.gather(*map(line, lines.values()))
        errors = [error for error in ended if error is not None]
        if errors:
            _log.warning(
                "%s: the batch is tried again, %d of its lines are not done",
                self._consumer.name, len(errors),
            )  # fmt: skip
            raise errors[0]

    def _turn(self, event: StreamEvent) -> str:
        """What no two events handled at the same time may have in common."""
        try:
            return self._key(event)
        except DeliveryRejected:
            return ""

    async def _tried(
        self,
        event: StreamEvent,
        work: Callable[[], Awaitable[Any]],
        codec: ResultCodec[Any],
        tried: int,
    ) -> Exception | None:
        """Why this event, and what comes behind it, has to be tried again; None when it is dealt with."""
        incoming = _Incoming(event, self._delivery, self._set_aside, again=tried > 0)
        try:
            await settle(
                self._consumer, incoming, work, codec, pacing=_NO_HOLD, clock=self._clock, wait=0.0
            )
        except (StoreUnavailable, TransientFailure) as error:
            return error
        except Exception as error:  # noqa: BLE001 - one event must not stop all that come after it
            _log.error("%s: %s failed", self._consumer.name, event, exc_info=error)
            if tried + 1 < self._tries:
                return error
            try:
                await incoming.set_aside(
                    "HandlerFailed", _failure(self._consumer.name, error, tried + 1)
                )
            except Exception as unkept:  # noqa: BLE001 - then it is not aside, and may not be passed over
                return unkept
        return None

    def _delivery(self, event: StreamEvent, again: bool) -> Delivery:
        return Delivery(
            key=self._key(event),
            fingerprint=self._fingerprint(event.body) if self._fingerprint else None,
            trigger=self._trigger,
            redelivered=again,
            sent_at=event.sent_at,
            trace_parent=trace_parent(event.properties.get("traceparent"))
            or trace_parent(event.properties.get("Diagnostic-Id")),
            body=event.body,
        )


def _failure(consumer: str, error: Exception, tries: int) -> str:
    """Without what the exception says, which may quote the event."""
    return f"consumer {consumer}: {type(error).__name__}, in {tries} tries of its batch"


class _Incoming:
    """An event that the log hands out again with its whole batch, or not at all."""

    delivery_count = None  # a log counts nothing

    def __init__(
        self,
        event: StreamEvent,
        deliver: Callable[[StreamEvent, bool], Delivery],
        set_aside: SetAside,
        *,
        again: bool,
    ) -> None:
        self._event = event
        self._deliver = deliver
        self._set_aside = set_aside
        self._again = again

    def delivery(self) -> Delivery:
        try:
            return self._deliver(self._event, self._again)
        except MissingKey as error:
            raise MissingKey(f"{error} (event at {self._event.position})") from error

    async def acknowledge(self) -> None:
        """The checkpoint is the host's, and moves with the batch."""

    async def set_aside(self, reason: str, description: str) -> None:
        await self._set_aside(self._event, reason, description)
        _log.error("%s was set aside: %s: %s", self._event, reason, description)

    def give_back(self, error: Exception) -> None:
        raise error
