"""The timer trigger: NCRONTAB expressions and time spans."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from .bindings import BindingError, Function, resolve
from .hostjson import time_span
from .inputs import timer_info
from .invocations import Invocations

log = logging.getLogger("local.host")

NAMES: Mapping[str, Mapping[str, int]] = {
    "month": {
        name: number
        for number, name in enumerate(
            ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
            start=1,
        )
    },
    "weekday": {
        name: number
        for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])
    },
}
FIELDS = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
)
HORIZON = 366 * 8  # days searched for the next slot: 29 February is at most eight years away


@dataclass(frozen=True, slots=True)
class Schedule:
    """Slots by calendar, or every so many seconds when `interval` is set.

    As in NCRONTAB, and unlike Unix cron, day and weekday must both match.
    """

    fields: tuple[frozenset[int], ...] = ()
    interval: float | None = None

    def after(self, moment: datetime) -> datetime:
        """The first slot later than the moment. Raises ValueError when there is none."""
        if self.interval is not None:
            return moment + timedelta(seconds=self.interval)
        seconds, minutes, hours, days, months, weekdays = self.fields
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        day = start.replace(hour=0, minute=0, second=0)
        for _ in range(HORIZON):
            if day.day in days and day.month in months and day.isoweekday() % 7 in weekdays:
                times = (
                    day.replace(hour=hour, minute=minute, second=second)
                    for hour in sorted(hours)
                    if day.date() > start.date() or hour >= start.hour
                    for minute in sorted(minutes)
                    for second in sorted(seconds)
                )
                for slot in times:
                    if slot >= start:
                        return slot
            day += timedelta(days=1)
        raise ValueError("no such date")


def schedule(text: str) -> Schedule:
    """The schedule in an NCRONTAB expression (six fields, or five without seconds) or a time span.

    Raises ValueError that names the field which is wrong.
    """
    parts = text.split()
    if len(parts) == 1:
        return Schedule(interval=time_span(text))
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) != 6:
        raise ValueError(f"{text!r} has {len(parts)} fields, not 6")
    values = (_field(part, *bounds) for part, bounds in zip(parts, FIELDS, strict=True))
    return Schedule(fields=tuple(values))


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    try:
        for piece in text.split(","):
            span, _, step = piece.partition("/")
            first, dash, last = span.partition("-")
            if span == "*":
                begin, end = low, high
            else:
                begin = _number(first, name)
                end = _number(last, name) if dash else (high if step else begin)
            if not low <= begin <= end <= high:
                raise ValueError
            values.update(range(begin, end + 1, int(step) if step else 1))
    except ValueError:
        raise ValueError(f"{text!r} is no {name} ({low}-{high})") from None
    return frozenset(values)


def _number(text: str, name: str) -> int:
    known = NAMES.get(name, {}).get(text.upper())
    if known is not None:
        return known
    return int(text)


class TimerTrigger:
    """Runs one function at the slots of its schedule, one slot at a time."""

    def __init__(
        self,
        function: Function,
        invocations: Invocations,
        environment: Mapping[str, str],
        zone: tzinfo = UTC,
    ) -> None:
        self.function = function
        self._invocations = invocations
        self._zone = zone
        self._run_on_startup = bool(function.trigger.get("runOnStartup", False))
        text = resolve(str(function.trigger["schedule"]), environment)
        try:
            self._schedule = schedule(text)
        except ValueError as error:
            raise BindingError(f"schedule: {error}") from None
        self._last: datetime | None = None
        self._clock: asyncio.Task[None] | None = None
        self._runs: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if self._run_on_startup:
            self.run_now()
        self._clock = asyncio.create_task(self._tick(), name=f"timer:{self.function.name}")

    async def stop(self, grace: float) -> None:
        """No further slots; a running one may finish within the grace."""
        if self._clock is not None:
            self._clock.cancel()
            await asyncio.gather(self._clock, return_exceptions=True)
        if self._runs:
            _, late = await asyncio.wait(self._runs, timeout=grace)
            for run in late:
                run.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def run_now(self) -> None:
        """Run the function out of turn, in the background."""
        self._start_run(datetime.now(self._zone))

    async def _tick(self) -> None:
        slot = datetime.now(self._zone)
        while True:
            slot = self._schedule.after(slot)
            await asyncio.sleep(max((slot - datetime.now(self._zone)).total_seconds(), 0))
            # Slots that pass while the function runs are skipped, as Azure's host does.
            run = self._start_run(slot)
            await asyncio.wait([run])
            slot = max(slot, datetime.now(self._zone) - timedelta(seconds=1))

    def _start_run(self, slot: datetime) -> asyncio.Task[None]:
        run = asyncio.create_task(self._run(slot))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)
        return run

    async def _run(self, slot: datetime) -> None:
        data, metadata = timer_info(last=self._last, next_time=self._schedule.after(slot))
        await self._invocations.run(self.function.name, data, metadata)
        self._last = slot
