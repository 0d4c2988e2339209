"""The record of one running attempt: every write is conditional on its ETag, one at a time."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from .clock import Clock, jittered
from .errors import StoreUnavailable
from .records import Record, Status, Stored
from .store import Store

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_CLAIM_TRIES = 4
_WRITES = 8
"""How often a refused write is begun anew from what the store holds; only stale reads need more."""


async def answered[T](
    call: Callable[[], Awaitable[T]],
    clock: Clock,
    *,
    within: float,
    tries: int | None = _CLAIM_TRIES,
) -> T:
    """The answer of a store call, issued again while the store does not answer, for ``within`` seconds.

    Only for calls that may be issued twice: reads, and writes that recognise their own earlier self
    by the owner. ``tries`` None is bounded by time alone. Raises the last StoreUnavailable.
    """
    give_up = clock.monotonic() + within
    pause = _FIRST_PAUSE
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            tries = None if tries is None else tries - 1
            hold = max(error.retry_after or 0.0, jittered(pause))
            if tries == 0 or clock.monotonic() + hold >= give_up:
                raise
        await clock.sleep(hold)
        pause = min(pause * 2, _LONGEST_PAUSE)


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
        async with self._order:
            if self.record.status is not Status.IN_PROGRESS:
                return True  # concluded meanwhile: there is no lease any more
            return await self._write({}, tries=_CLAIM_TRIES)

    async def write(self, **changes: Any) -> bool:
        """Replace the record with some fields changed; False, and nothing changed, when superseded.

        Issued again until the lease ends. Raises StoreUnavailable, or MalformedContent when the store
        cannot hold the record.
        """
        async with self._order:
            return await self._write(changes, tries=None)

    async def delete(self) -> bool:
        """Delete the record, so that the next delivery starts afresh; False when superseded.

        A record that is gone counts as deleted by us: the answer to our delete may have been lost.
        """
        async with self._order:
            for _ in range(_WRITES):
                if await self._answered(lambda: self._store.delete(self.record, self._stored.etag)):
                    return True
                current = await self._read()
                if current is None or not self._is_ours(current):
                    return current is None
            raise self._unsteady()

    async def _write(self, changes: dict[str, Any], *, tries: int | None) -> bool:
        for _ in range(_WRITES):
            sent_at = self._clock.monotonic()
            record = self.record.replaced(**changes)
            replace = functools.partial(self._store.replace, record, self._stored.etag)
            written = await self._answered(replace, tries)
            if written is not None:
                self._stored = written
                self._renewed_at = sent_at
                return True
            if not self._is_ours(await self._read()):
                return False
            if self.record.status.is_finished:
                # our own conclusion, whose answer was lost: nothing is written after it
                return True
        raise self._unsteady()

    async def _read(self) -> Stored | None:
        record = self.record
        return await self._answered(lambda: self._store.read(record.consumer, record.key))

    def _is_ours(self, current: Stored | None) -> bool:
        """Whether the attempt still owns the record, which then is where its next write starts."""
        if current is None or current.record.owner != self.record.owner:
            return False
        self._stored = current
        return True

    async def _answered[T](
        self, call: Callable[[], Awaitable[T]], tries: int | None = _CLAIM_TRIES
    ) -> T:
        return await answered(call, self._clock, within=self.lease_left(), tries=tries)

    def _unsteady(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"consumer {self.record.consumer}: the {self._store.name} store refuses a write and then "
            "reads the record as unchanged"
        )
