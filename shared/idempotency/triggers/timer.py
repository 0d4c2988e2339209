"""The timer trigger: scheduled slot -> delivery, outcome -> done, tried again, or told.

==========================================  ====================================================
outcome                                     what becomes of the slot
==========================================  ====================================================
processed, duplicate, stale                 done
in flight and waited; store down; transient the run fails: the host's retry policy, then the next run
failed                                      logged as an error, once
rejected by the handler                     logged as an error, by each run that looks at it
quarantined, too old                        logged as an error, likewise; nothing runs
any other exception                         the run fails, as above
==========================================  ====================================================

The key is the job and its scheduled slot, never the clock, so that overlapping, late and manual runs of
one slot have one effect. The host has no message that could come back: what a run could not do is made
up for by the next ones, see ``catch_up``.
"""

import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import azure.functions as func
import msgspec

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, DeliveryRejected, TransientFailure
from ..protected import Protected
from ..records import Delivery, Handled, Outcome, Policy
from ..schedules import Crontab, crontab
from .protecting import Handler

_log = logging.getLogger("idempotency.timer")
_SECOND = timedelta(seconds=1)
_EARLY = _SECOND
"""By how much a host's clock may be ahead of ours when it fires."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job as it was scheduled, whenever it really comes to run.

    ``due`` is in UTC and whole seconds. ``name`` tells this slot from the job's others: with the consumer
    it is the deduplication key.
    """

    due: datetime
    name: str


class Job(Protected, Protocol):
    """A consumer that also tells its policy."""

    @property
    def policy(self) -> Policy: ...


type NameOf = Callable[[datetime], str]
"""Names the slot that is due then, in UTC. A pure function."""

type Decorator = Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, None]]]


def idempotent(
    consumer: Job,
    *,
    schedule: str,
    catch_up: int,
    name_of: NameOf = datetime.isoformat,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a timer's handler, which takes one `Slot`; stands below the trigger decorator.

    The consumer is the job: one for each, since nothing else scopes a slot's key. The trigger's
    ``arg_name`` is ``timer``. ``schedule`` is the trigger's own, as text: an NCRONTAB expression, in UTC.
    ``catch_up``: how many of the slots before the last one each run looks at, oldest first, and makes up
    for where they are not done (the host fires once for however many it missed, and forgets a run that
    failed); 0: each run is for its own slot alone. The first run after a deployment finds none of the
    earlier ones done.

    ``name_of`` names a slot, by its time unless something else says better what is done once: a job that
    does a day's work names it by the day, so that a changed schedule does not do a day again.

    Raises ConfigurationError for a schedule that is none, and when records are not kept for as long as
    ``catch_up`` looks back: what was purged would run again.
    """
    time = clock or SystemClock()
    slots = _Slots(consumer, schedule, catch_up, name_of)
    slots.check(_now(time))

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, Slot)
        codec = handler.codec()

        async def protected(timer: func.TimerRequest) -> None:
            now = _now(time)
            failure: Exception | None = None
            for slot, delivery in slots.of_run(timer, now):
                try:
                    handled = await consumer.handle(delivery, handler.work((slot,), {}), codec)
                    _settle(consumer.name, slot, handled)
                except DeliveryRejected as error:
                    _log.error("%s, slot %s: %s: %s", consumer.name, slot.name, error.reason, error)
                except Exception as error:  # noqa: BLE001 - one slot must not keep the others from running
                    _log.warning("%s, slot %s is not done: %s", consumer.name, slot.name, error)
                    failure = failure or error
            if failure is not None:
                raise failure

        return handler.expose_instead(protected, timer=func.TimerRequest, returns=None)

    return protect


class _Slots:
    """Which slots of a job one run is for."""

    def __init__(self, consumer: Job, schedule: str, catch_up: int, name_of: NameOf) -> None:
        if catch_up < 0:
            raise ConfigurationError(f"{consumer.name}: catch_up must not be below 0")
        self._job = consumer.name
        self._retention = timedelta(seconds=consumer.policy.retention)
        self._catch_up = catch_up
        self._name_of = name_of
        try:
            self._schedule: Crontab = crontab(schedule)
        except ValueError as error:
            raise ConfigurationError(
                f"{consumer.name}: schedule: {error}. A time span has no slots that could be known again"
            ) from error

    def check(self, now: datetime) -> None:
        """Raise ConfigurationError unless records outlive what a run looks back to."""
        try:
            oldest = self._earlier(now)[0]
        except ValueError as error:
            raise ConfigurationError(f"{self._job}: schedule: {error}") from error
        # the next run looks at the oldest for the last time, one slot later
        if self._schedule.after(now) - oldest > self._retention:
            raise ConfigurationError(
                f"{self._job}: catch_up of {self._catch_up} looks back to {oldest:%Y-%m-%d %H:%M}, which is "
                f"longer than the retention ({self._retention}): a slot whose record is gone would run again"
            )

    def of_run(self, timer: func.TimerRequest, now: datetime) -> list[tuple[Slot, Delivery]]:
        """The slots that a run is for, oldest first, each with its delivery."""
        slot = self._slot(timer, now)
        due = [slot]
        if self._catch_up:
            looked_at = self._earlier(max(slot, now))
            due = sorted({slot, *looked_at})
            if self._schedule.after(slot) < looked_at[0]:
                _log.error(
                    "%s: the slots between %s and %s were missed, and are more than catch_up makes up for",
                    self._job,
                    self._name_of(slot),
                    self._name_of(looked_at[0]),
                )
        runs: dict[str, tuple[Slot, Delivery]] = {}
        for moment in due:
            if now - moment > self._retention:
                _log.error(
                    "%s, slot %s: it is older than records are kept, so whether it was done is not known; "
                    "nothing ran",
                    self._job,
                    self._name_of(moment),
                )
                continue
            each = Slot(due=moment, name=self._name_of(moment))
            # an earlier one was most likely done: read first
            seen = timer.past_due or moment < due[-1]
            runs.setdefault(each.name, (each, self._delivery(each, seen)))
        return list(runs.values())

    def _slot(self, timer: func.TimerRequest, now: datetime) -> datetime:
        """The slot that the host fires for, else the last one by the schedule.

        The status that the host hands over was written before this run: its ``Next`` is this run's own
        slot, and for a late run the slot that was missed. In a manual run, and at a start with
        ``runOnStartup``, it lies ahead, and there is none without ``useMonitor``.
        """
        status = getattr(timer, "schedule_status", None) or {}  # the SDK's base class has none
        told = _moment(status.get("Next"))
        if told is None or told > now + _EARLY:
            told = now
        return self._schedule.at_or_before(told)

    def _earlier(self, moment: datetime) -> list[datetime]:
        """The last slot at that moment, and those before it that are looked at, oldest first."""
        found = [self._schedule.at_or_before(moment)]
        while len(found) <= self._catch_up:
            found.append(self._schedule.at_or_before(found[-1] - _SECOND))
        return found[::-1]

    def _delivery(self, slot: Slot, seen: bool) -> Delivery:
        return Delivery(
            key=slot.name, trigger="timer", redelivered=seen, sent_at=slot.due.timestamp()
        )


def _settle(consumer: str, slot: Slot, handled: Handled[Any]) -> None:
    match handled.outcome:
        case Outcome.IN_FLIGHT:
            raise TransientFailure("another attempt is still in flight")
        case Outcome.PROCESSED | Outcome.STALE | Outcome.DUPLICATE:
            pass  # a duplicate of a failure was told of when it failed
        case _:
            _log.error(
                "%s, slot %s: %s: %s: %s",
                consumer,
                slot.name,
                handled.outcome,
                handled.reason,
                handled.description,
            )


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)


def _moment(told: object) -> datetime | None:
    """A moment as the host writes it, in UTC and whole seconds; None for none."""
    try:
        moment = datetime.fromisoformat(str(told))
    except ValueError:
        return None
    if moment.year == 1:
        return None  # how .NET writes that there is none
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).replace(microsecond=0)
