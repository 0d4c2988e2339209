"""A clock that is moved by hand."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable


class FakeClock:
    """Time that passes only when it is told to; it wakes sleepers in the order of their time.

    ``skew`` is by how many seconds the wall clock is wrong.
    """

    def __init__(self, *, start: float = 1_700_000_000.0, skew: float = 0.0) -> None:
        self._start = start + skew
        self._passed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._start + self._passed

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        until = self._passed + seconds
        await _settled()
        while (due := self._next()) is not None and due <= until:
            await self._wake(due)
        self._passed = until
        await _settled()

    async def run[T](self, work: Awaitable[T]) -> T:
        """The outcome of ``work``, letting as much time pass as it needs.

        Raises RuntimeError when it waits for something that no time brings.
        """
        task = asyncio.ensure_future(work)
        while True:
            await _settled()
            if task.done():
                return task.result()
            due = self._next()
            if due is not None:
                await self._wake(due)
                continue
            await asyncio.wait({task}, timeout=2.0)  # a thread, at the most
            if not task.done() and self._next() is None:
                task.cancel()
                raise RuntimeError("nothing is left to wait for, and the work is not done")

    def _next(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def _wake(self, due: float) -> None:
        self._passed = max(self._passed, due)
        _, _, sleeper = heapq.heappop(self._sleepers)
        sleeper.set_result(None)
        await _settled()


async def _settled() -> None:
    """Let every task run until it waits for something."""
    for _ in range(40):
        await asyncio.sleep(0)
