"""Records in this process's memory: for tests, and for trying the module without any service."""

import itertools

from ..clock import Clock, SystemClock
from ..records import Record, Stored


class MemoryStore:
    """A store that forgets everything with its process; never for two instances of an app.

    Its clock stands in for a service's. Each method runs without yielding, so it is as atomic as
    the conditional write it stands for.
    """

    name = "memory"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: dict[tuple[str, str], tuple[Record, str, float]] = {}
        self._etags = itertools.count(1)

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = self._records.get((consumer, key))
        if held is None:
            return None
        record, etag, written_at = held
        return Stored(record=record, etag=etag, age=self._clock.monotonic() - written_at)

    async def insert(self, record: Record) -> Stored | None:
        if (record.consumer, record.key) in self._records:
            return None
        return self._written(record)

    async def replace(self, record: Record, etag: str) -> Stored | None:
        return self._written(record) if self._is_at(record, etag) else None

    async def delete(self, record: Record, etag: str) -> bool:
        if not self._is_at(record, etag):
            return False
        del self._records[record.consumer, record.key]
        return True

    def addresses(self) -> list[tuple[str, str]]:
        """Consumer and key of everything kept."""
        return list(self._records)

    async def close(self) -> None:
        return None

    def _is_at(self, record: Record, etag: str) -> bool:
        held = self._records.get((record.consumer, record.key))
        return held is not None and held[1] == etag

    def _written(self, record: Record) -> Stored:
        etag = str(next(self._etags))
        self._records[record.consumer, record.key] = (record, etag, self._clock.monotonic())
        return Stored(record=record, etag=etag)
