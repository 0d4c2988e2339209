"""ISO 8601 durations as Azure writes them: days and smaller units, fractions of a second."""

import re
from datetime import timedelta

_PATTERN = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
)

FOREVER = timedelta(days=10_675_199)
"""Whole days of .NET's TimeSpan.MaxValue, by which Azure says "never"."""


def parse_duration(text: str) -> timedelta:
    """Read `P14D`, `PT1M` or `P1DT2H30.5S`.

    Years and months have no fixed length and are refused like any other text that is no
    duration (ValueError).
    """
    found = _PATTERN.fullmatch(text)
    parts = {unit: value for unit, value in found.groupdict().items() if value} if found else {}
    if not parts:
        raise ValueError(f"{text!r} is no ISO 8601 duration of days, hours, minutes and seconds")
    return timedelta(**{unit: float(value) for unit, value in parts.items()})
