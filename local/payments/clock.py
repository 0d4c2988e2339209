"""The provider's time, and what is to happen in it later."""

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Clock:
    """Real time plus an offset that tests and the demo may move forward. Thread-safe."""

    def __init__(self, on_advance: Callable[[], None] = lambda: None) -> None:
        """Call `on_advance` after every move, on the caller's thread."""
        self._began_at = datetime.now(UTC)
        self._began = time.monotonic()
        self._offset = 0.0
        self._moving = threading.Lock()
        self._on_advance = on_advance

    def elapsed(self) -> float:
        """Seconds since the clock began, offset included; they never run back."""
        return time.monotonic() - self._began + self._offset

    def now(self) -> datetime:
        """The date and time, offset included."""
        return self._began_at + timedelta(seconds=self.elapsed())

    def advance(self, seconds: float) -> None:
        """Move time forward; time never goes back (ValueError).

        What falls due by that has happened when this returns: keys are forgotten, late calls
        have landed, slow charges are made (their answers are on the way).
        """
        if seconds < 0:
            raise ValueError(f"the clock only moves forward, not by {seconds} seconds")
        with self._moving:
            self._offset += seconds
        self._on_advance()


class Timetable:
    """Actions at moments of the provider's clock. For the thread of the running loop alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it that many seconds from now, by the provider's clock."""
        entry = (self._clock.elapsed() + seconds, next(self._order), action)
        heapq.heappush(self._entries, entry)
        self._set_timer()

    def catch_up(self) -> None:
        """Do all that has fallen due, in its order."""
        while self._entries and self._entries[0][0] <= self._clock.elapsed():
            _, _, action = heapq.heappop(self._entries)
            action()
        self._set_timer()

    def clear(self) -> None:
        """Forget everything that has not happened yet."""
        self._entries.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._entries:
            pause = max(0.0, self._entries[0][0] - self._clock.elapsed())
            self._timer = asyncio.get_running_loop().call_later(pause, self.catch_up)
