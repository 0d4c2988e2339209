"""Duplicate detection as the service does it: by message id, within a window, at the door."""

from datetime import timedelta

from .clock import Clock


class DetectionHistory:
    """The message ids of the last `window`; a window of None detects nothing.

    A repeat does not prolong the window: it runs from the message that was let in. A message
    without an id is never a duplicate.
    """

    def __init__(self, window: timedelta | None, clock: Clock) -> None:
        self._window = window.total_seconds() if window else None
        self._clock = clock
        self._admitted: dict[str, float] = {}  # in order of admission, oldest first

    def is_repeat(self, message_id: str | None) -> bool:
        """Say whether this id was let in within the window; remember it if it was not."""
        if self._window is None or message_id is None:
            return False
        now = self._clock.now()
        self._forget_before(now - self._window)
        if message_id in self._admitted:
            return True
        self._admitted[message_id] = now
        return False

    def _forget_before(self, moment: float) -> None:
        while self._admitted:
            oldest = next(iter(self._admitted))
            if self._admitted[oldest] > moment:
                return
            del self._admitted[oldest]
