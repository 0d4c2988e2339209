"""The record of one running attempt: every write is conditional on its ETag, one at a time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from .clock import Clock
from .errors import StoreUnavailable
from .records import Record, Stored
from .store import Store

_TRIES = 4
_FIRST_PAUSE = 0.2


async def answered[T](call: Callable[[], Awaitable[T]], clock: Clock, *, within: float) -> T:
    """The answer of a store call, issued again while the store does not answer, for ``within`` seconds.

    Only for calls that may be issued twice: reads, and writes that recognise their own earlier self
    by the owner. Raises the last StoreUnavailable.
    """
    give_up = clock.monotonic() + within
    pause = _FIRST_PAUSE
    for _ in range(_TRIES - 1):
        try:
            return await call()
        except StoreUnavailable as error:
            pause_now = max(error.retry_after or 0.0, pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            if clock.monotonic() + pause_now >= give_up:
                raise
        await clock.sleep(pause_now)
        pause *= 2
    return await call()


class FencedRecord:
    """Writes an attempt's record for as long as the attempt owns it.

    One lock orders heartbeat, steps and completion. A refused write is read once: the attempt is
    superseded only if the owner differs; its own earlier write, whose answer was lost, is no stranger.
    """

    def __init__(self, store: Store, clock: Clock, stored: Stored, *, claimed_at: float) -> None:
        """``claimed_at``: monotonic seconds from before the claim was sent; the lease counts from it."""
        self._store = store
        self._clock = clock
        self._stored = stored
        self._renewed_at = claimed_at
        self._order = asyncio.Lock()

    @property
    def record(self) -> Record:
        return self._stored.record

    def lease_left(self) -> float:
        """Seconds for which the attempt surely still owns the record, at the least."""
        return self._renewed_at + self.record.lease - self._clock.monotonic()

    async def renew(self) -> bool:
        """Begin the lease anew; False when the attempt is superseded."""
        sent_at = self._clock.monotonic()
        if not await self.write():
            return False
        self._renewed_at = sent_at
        return True

    async def write(self, **changes: Any) -> bool:
        """Replace the record with some fields changed; False, and nothing changed, when superseded."""
        async with self._order:
            record = self.record.replaced(**changes)
            while True:
                written = await self._answered(
                    lambda: self._store.replace(record, self._stored.etag)
                )
                if written is not None:
                    self._stored = written
                    return True
                if not self._is_ours(await self._read()):
                    return False

    async def delete(self) -> bool:
        """Delete the record, so that the next delivery starts afresh; False when superseded.

        A record that is gone counts as deleted by us: the answer to our delete may have been lost.
        """
        async with self._order:
            while True:
                if await self._answered(lambda: self._store.delete(self.record, self._stored.etag)):
                    return True
                current = await self._read()
                if current is None or not self._is_ours(current):
                    return current is None

    async def _read(self) -> Stored | None:
        record = self.record
        return await self._answered(lambda: self._store.read(record.consumer, record.key))

    def _is_ours(self, current: Stored | None) -> bool:
        """Whether the attempt still owns the record, which then is where its next write starts."""
        if current is None or current.record.owner != self.record.owner:
            return False
        self._stored = current
        return True

    async def _answered[T](self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(call, self._clock, within=self.lease_left())
