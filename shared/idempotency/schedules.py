"""NCRONTAB: the times at which a timer is due. Pure functions over moments.

As the Functions host reads an expression, and unlike Unix cron: six fields with seconds first, and the
day of the month and the day of the week must both match.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, time, timedelta
from typing import Final

import msgspec

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "month": (
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ),
    "weekday": ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}  # fmt: skip
_FIELDS: Final = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
)
_DAYS_SEARCHED: Final = 366 * 8
"""29 February is at most eight years away."""


class Crontab(msgspec.Struct, frozen=True):
    """The slots of one expression, in whole seconds and in the zone of the moments it is asked about."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    def after(self, moment: datetime) -> datetime:
        """The first slot later than the moment; ValueError when no such date ever comes."""
        earliest = moment.replace(microsecond=0) + timedelta(seconds=1)
        for day in self._days(earliest, timedelta(days=1)):
            from_ = earliest.time() if day.date() == earliest.date() else time.min
            for hour in self.hours:
                for minute in self.minutes if hour >= from_.hour else ():
                    for second in self.seconds:
                        if time(hour, minute, second) >= from_:
                            return day.replace(hour=hour, minute=minute, second=second)
        raise ValueError("no such date")

    def at_or_before(self, moment: datetime) -> datetime:
        """The last slot that is not later than the moment; ValueError when there never was one."""
        for day in self._days(moment, timedelta(days=-1)):
            to = moment.time() if day.date() == moment.date() else time.max
            for hour in reversed(self.hours):
                for minute in reversed(self.minutes) if hour <= to.hour else ():
                    for second in reversed(self.seconds):
                        if time(hour, minute, second) <= to:
                            return day.replace(hour=hour, minute=minute, second=second)
        raise ValueError("no such date")

    def _days(self, first: datetime, step: timedelta) -> Iterator[datetime]:
        """Midnights of the days that match, from the one of ``first`` on."""
        day = first.replace(hour=0, minute=0, second=0, microsecond=0)
        for _ in range(_DAYS_SEARCHED):
            if (
                day.day in self.days
                and day.month in self.months
                and day.isoweekday() % 7 in self.weekdays
            ):
                yield day
            day += step


def crontab(text: str) -> Crontab:
    """The schedule in an expression of six fields, or of five, whose seconds are 0.

    Raises ValueError that names the field which is wrong.
    """
    parts = text.split()
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) != 6:
        raise ValueError(f"{text!r} has {len(parts)} fields, not 6")
    return Crontab(*(_field(part, *bounds) for part, bounds in zip(parts, _FIELDS, strict=True)))


def _field(text: str, name: str, low: int, high: int) -> tuple[int, ...]:
    values: set[int] = set()
    try:
        for piece in text.split(","):
            span, _, step = piece.partition("/")
            first, dash, last = span.partition("-")
            if span == "*":
                begin, end = low, high
            else:
                begin = _number(first, name, low)
                end = _number(last, name, low) if dash else (high if step else begin)
            if not low <= begin <= end <= high:
                raise ValueError
            values.update(range(begin, end + 1, int(step) if step else 1))
    except ValueError:
        raise ValueError(f"{text!r} is no {name} ({low}-{high})") from None
    return tuple(sorted(values))


def _number(text: str, name: str, low: int) -> int:
    names = _NAMES.get(name, ())
    if text.upper() in names:
        return names.index(text.upper()) + low
    return int(text)
