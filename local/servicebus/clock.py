"""The broker's clock: real time plus an offset that tests and the demo may move forward."""

import threading
import time
from collections.abc import Callable


def _steady_source() -> Callable[[], float]:
    """Seconds since the epoch that never jump back when the machine's clock is set."""
    anchor = time.time() - time.monotonic()
    return lambda: anchor + time.monotonic()


class Clock:
    """Seconds since the epoch, as the broker sees them.

    Locks, time-to-live, schedules and detection windows follow this clock, so `advance` ages
    everything in the broker at once. Clients keep living in real time: what goes over the wire
    is shifted back by the offset (`to_wire`), so that a client's own arithmetic ("the lock lasts
    another 40 seconds") stays right after an advance. A message locked *before* an advance is
    the exception: the client cannot know, and its next settlement is stale.
    """

    def __init__(
        self,
        source: Callable[[], float] | None = None,
        on_advance: Callable[[], None] = lambda: None,
    ) -> None:
        """Start at `source()`; call `on_advance` after every move, from the caller's thread."""
        self._source = source or _steady_source()
        self._on_advance = on_advance
        self._offset = 0.0
        self._moving = threading.Lock()

    def now(self) -> float:
        """Seconds since the epoch, offset included."""
        return self._source() + self._offset

    def advance(self, seconds: float) -> None:
        """Move time forward; time never goes back (ValueError)."""
        if seconds < 0:
            raise ValueError(f"the clock only moves forward, not by {seconds} seconds")
        with self._moving:
            self._offset += seconds
        self._on_advance()

    def to_wire(self, moment: float) -> float:
        """Translate a moment of the broker's into the client's real time."""
        return moment - self._offset

    def from_wire(self, moment: float) -> float:
        """Translate a moment in the client's real time into the broker's."""
        return moment + self._offset
