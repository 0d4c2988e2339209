"""What happens, as frozen events; observers count and log it. Payloads are in none of them."""

import logging
from collections.abc import Awaitable
from typing import Protocol

import msgspec

from .clock import Clock
from .keys import presentable
from .records import Delivery, Handled, Status

_log = logging.getLogger("idempotency")
_LONGEST_KEY = 200
"""Characters of a key in a note; one that is refused may be of any length."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something an observer may want to count. Durations are in seconds."""


class DeliveryHandled(Event, frozen=True, kw_only=True):
    """A delivery got its outcome."""

    consumer: str
    delivery: Delivery
    handled: Handled[object]
    duration: float


class DeliveryFaulted(Event, frozen=True, kw_only=True):
    """A delivery ended in an exception and will come back: the handler raised, or the store is down."""

    consumer: str
    delivery: Delivery
    error: str
    duration: float


class TakenOver(Event, frozen=True, kw_only=True):
    """An attempt was claimed whose predecessor died."""

    consumer: str
    attempt: int
    policy: str = "rerun"


class Fenced(Event, frozen=True, kw_only=True):
    """A superseded attempt was refused a write; it changed nothing."""

    consumer: str
    operation: str


class HandlerRan(Event, frozen=True, kw_only=True):
    """The business code ran, whatever came of it."""

    consumer: str
    duration: float


class ResultNotKept(Event, frozen=True, kw_only=True):
    """The work was completed, but its result is too large or of no kind that can be kept."""

    consumer: str
    key: str
    cause: str


class EffectUnknown(Event, frozen=True, kw_only=True):
    """A step was called, and what it did is not known."""

    consumer: str
    key: str
    step: str
    error: str


class StepsChanged(Event, frozen=True, kw_only=True):
    """A handler does not ask for its steps as the attempt before it did: it was changed meanwhile.

    ``unused``: recorded steps that it no longer asks for. ``reordered``: it asks in another order.
    """

    consumer: str
    key: str
    unused: tuple[str, ...]
    reordered: bool


class StoreCalled(Event, frozen=True, kw_only=True):
    """One round trip to the store; ``result`` is ok, refused, absent or unavailable."""

    store: str
    operation: str
    result: str
    duration: float


class MessageRelayed(Event, frozen=True, kw_only=True):
    """A message of the outbox was handed to the broker, or was not: then it stays pending.

    ``by``: "commit", right after it, or "sweep".
    """

    destination: str
    by: str
    sent: bool


class UpkeepRan(Event, frozen=True, kw_only=True):
    """A timer's work was done: ``job`` is purge, survey or sweep.

    ``result``: done; partial, its bound was reached and the next run goes on; failed; or not_needed.
    ``items`` is how many it dealt with.
    """

    job: str
    result: str
    items: int
    duration: float


class UnfinishedCounted(Event, frozen=True, kw_only=True):
    """How many unfinished records of one consumer and status have not changed for long."""

    consumer: str
    status: Status
    records: int
    oldest: float


class Observer(Protocol):
    """Takes every event, in the task where it happens: be quick, and never raise."""

    def __call__(self, event: Event, /) -> None: ...


def ignore(event: Event, /) -> None:
    """The observer that nothing is told."""


def all_of(*observers: Observer) -> Observer:
    """One observer that tells several."""

    def tell(event: Event, /) -> None:
        for observer in observers:
            observer(event)

    return tell


def undisturbed(observer: Observer) -> Observer:
    """An observer whose failure is logged and goes no further: counting must not undo work."""

    def tell(event: Event, /) -> None:
        try:
            observer(event)
        except Exception:  # noqa: BLE001 - whatever it is, the work goes on
            _log.exception("an observer failed at %s", type(event).__name__)

    return tell


async def observed[R](
    handling: Awaitable[Handled[R]],
    *,
    consumer: str,
    delivery: Delivery,
    observer: Observer,
    clock: Clock,
) -> Handled[R]:
    """Await a delivery's handling and tell the observer how it ended.

    Whatever is raised, also by the handler, gets a note of the consumer and the key it was raised for.
    """
    began = clock.monotonic()
    try:
        handled = await handling
    except BaseException as error:
        _add_note(error, consumer, delivery.key)
        observer(
            DeliveryFaulted(
                consumer=consumer,
                delivery=delivery,
                error=type(error).__name__,
                duration=clock.monotonic() - began,
            )
        )
        raise
    duration = clock.monotonic() - began
    observer(
        DeliveryHandled(consumer=consumer, delivery=delivery, handled=handled, duration=duration)
    )
    return handled


def _add_note(error: BaseException, consumer: str, key: str) -> None:
    note = f"while consumer {consumer} handled key {presentable(key[:_LONGEST_KEY])!r}"
    if note not in getattr(error, "__notes__", ()):  # an exception may be raised more than once
        error.add_note(note)
