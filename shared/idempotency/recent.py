"""A small memory of what this process completed seconds ago: such duplicates cost no trip."""

from collections import OrderedDict

import msgspec

from .clock import Clock
from .records import Stored

_MOST = 1_000
"""With results of at most 30 KB this is 30 MB at the worst."""


class Recent:
    """Completed records of one consumer, for some seconds; never unfinished ones.

    ``seconds`` 0 turns it off. Bounded: the oldest are forgotten first.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._known: OrderedDict[str, tuple[float, Stored]] = OrderedDict()

    def keep(self, stored: Stored) -> None:
        """Remember a completed record."""
        if self._seconds <= 0:
            return
        now = self._clock.monotonic()
        self._known[stored.record.key] = (now, stored)
        self._known.move_to_end(stored.record.key)
        while len(self._known) > _MOST or self._oldest_is_before(now - self._seconds):
            self._known.popitem(last=False)

    def find(self, key: str) -> Stored | None:
        """The completed record of a key, if it is fresh enough to be trusted."""
        kept_at, stored = self._known.get(key, (0.0, None))
        if stored is None or self._clock.monotonic() - kept_at >= self._seconds:
            return None
        return msgspec.structs.replace(stored, age=stored.age + self._clock.monotonic() - kept_at)

    def _oldest_is_before(self, instant: float) -> bool:
        return bool(self._known) and next(iter(self._known.values()))[0] < instant
