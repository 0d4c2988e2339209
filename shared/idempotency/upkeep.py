"""What a timer does for the records: purge those that expired, count those that are stuck.

Two runs at once do no harm: each delete is under the ETag, and counting changes nothing.
"""

import time
from collections.abc import Awaitable, Sequence
from typing import Any

from .errors import StoreUnavailable
from .events import Observer, UnfinishedCounted, UpkeepRan
from .purging import Purgeable, Purged, purge
from .records import Status
from .scanning import Query, RecordScan
from .surveying import UNFINISHED, Survey, survey

STUCK_AFTER = 900.0
"""Seconds: far longer than any lease, and than a handler may take by default."""
_MOST_PAGES = 100


class Upkeep:
    """The upkeep of one app's records.

    ``purgeable``: those whose store does not delete what has expired by itself; None where it does.
    """

    def __init__(
        self,
        scans: Sequence[RecordScan],
        observer: Observer,
        *,
        purgeable: Purgeable | None,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        self._scans = scans
        self._observer = observer
        self._purgeable = purgeable
        self._stuck_after = stuck_after
        self._reported: set[tuple[str, Status]] = set()

    async def run(self) -> None:
        """Both jobs, each to its end or bound. Raises StoreUnavailable, of the first that failed."""
        failures = [
            failure
            for failure in (await self._purge(), await self._survey())
            if failure is not None
        ]
        if failures:
            raise failures[0]

    async def _purge(self) -> StoreUnavailable | None:
        if self._purgeable is None:
            self._observer(UpkeepRan(job="purge", result="not_needed", items=0, duration=0.0))
            return None
        _, failure = await self._timed("purge", purge(self._purgeable, most_pages=_MOST_PAGES))
        return failure

    async def _survey(self) -> StoreUnavailable | None:
        query = Query(statuses=UNFINISHED, older_than=self._stuck_after, page_size=1000)
        told, failure = await self._timed(
            "survey", survey(self._scans, query, most_pages=_MOST_PAGES)
        )
        if told is None:
            return failure
        counted = {(tally.consumer, tally.status): tally for tally in told.tallies}
        # what is not stuck any more is told as none: a gauge keeps what it was last given
        gone = self._reported - counted.keys() if told.complete else set()
        for consumer, status in gone:
            self._observer(
                UnfinishedCounted(consumer=consumer, status=status, records=0, oldest=0.0)
            )
        for tally in told.tallies:
            self._observer(
                UnfinishedCounted(
                    consumer=tally.consumer,
                    status=tally.status,
                    records=tally.records,
                    oldest=tally.oldest,
                )
            )
        self._reported = (self._reported - gone) | counted.keys()
        return None

    async def _timed[T: (Purged, Survey)](
        self, job: str, work: Awaitable[T]
    ) -> tuple[T | None, StoreUnavailable | None]:
        began = time.monotonic()
        done: Any = None
        failure = None
        result, items = "failed", 0
        try:
            done = await work
            result, items = _outcome(done)
        except StoreUnavailable as error:
            failure = error
        duration = time.monotonic() - began
        self._observer(UpkeepRan(job=job, result=result, items=items, duration=duration))
        return done, failure


def _outcome(done: Purged | Survey) -> tuple[str, int]:
    if isinstance(done, Purged):
        return ("done" if done.finished else "partial"), done.deleted
    return ("done" if done.complete else "partial"), sum(t.records for t in done.tallies)
