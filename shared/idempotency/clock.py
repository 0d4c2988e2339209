"""Time, as the module sees it; tests put their own in its place."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. All durations and instants are in seconds."""

    def now(self) -> float:
        """Seconds since the epoch, UTC: for what is written down, never to judge a lease."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump: for deadlines within this process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
