"""Time, as the module sees it; tests put their own in its place."""

import asyncio
import random
import time
from typing import Any, Protocol


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


async def finished_within(task: "asyncio.Task[Any]", seconds: float, clock: Clock) -> bool:
    """Whether a task finished within that time; it is not cancelled when it did not."""
    timer = asyncio.create_task(clock.sleep(max(seconds, 0.0)))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return task.done()


def jittered(seconds: float) -> float:
    """Half to all of a pause, by chance, so that those who wait for one thing do not come at once."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
