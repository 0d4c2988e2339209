"""Purging finished records whose retention is over, for stores that do not expire them by themselves.

Dedicated placement only: a marker beside the data is a business entity, or stands for one.
"""

import time
from typing import Protocol

import msgspec

from .decision import is_past_retention
from .records import Status
from .scanning import Found, Query, RecordScan

_FINISHED = frozenset({Status.COMPLETED, Status.FAILED})


class Purgeable(RecordScan, Protocol):
    """A scan of a store whose expired records can be deleted many at a time."""

    async def delete_all(self, found: list[Found]) -> int:
        """Delete those that are still as they were found; how many were.

        They are in one transaction per partition and hundred records; one that changed meanwhile is
        left alone, and keeps no other from being deleted.
        """
        ...

    async def position(self) -> str | None:
        """Where the last purge stopped; None to begin at the beginning."""
        ...

    async def note_position(self, position: str | None) -> None:
        """Keep where this purge stopped."""
        ...


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What one run did. ``finished``: it came to the end of the table; otherwise the next goes on there."""

    deleted: int = 0
    kept: int = 0
    """Expired, but changed between the look and the delete."""
    pages: int = 0
    finished: bool = True


def is_expired(found: Found) -> bool:
    """Whether a finished record was kept for as long as it should be, by the store's own clock."""
    return is_past_retention(found.record, found.age)


async def expired(
    scan: Purgeable, *, consumer: str | None = None, most_pages: int = 100
) -> tuple[int, bool]:
    """How many records a purge would delete, and whether there may be more; nothing is changed."""
    count = pages = 0
    async for page in scan.pages(_query(consumer)):
        count += sum(map(is_expired, page.records))
        pages += 1
        if pages >= most_pages and page.resume is not None:
            return count, True
    return count, False


async def purge(
    scan: Purgeable,
    *,
    consumer: str | None = None,
    most_pages: int = 100,
    most_seconds: float = 240.0,
) -> Purged:
    """Delete expired records, for so many requests and seconds at most, going on where the last run stopped.

    ``consumer``: only its records; such a run begins at the beginning. Raises StoreUnavailable; what
    was deleted by then is deleted, and the next run goes on.
    """
    began = time.monotonic()
    resume = None if consumer else await scan.position()
    deleted = kept = pages = 0
    position: str | None = None
    async for page in scan.pages(_query(consumer), resume=resume):
        doomed = [found for found in page.records if is_expired(found)]
        done = await scan.delete_all(doomed)
        deleted, kept = deleted + done, kept + len(doomed) - done
        pages += 1
        position = page.resume
        if pages >= most_pages or time.monotonic() - began >= most_seconds:
            break
    if consumer is None and position != resume:
        await scan.note_position(position)
    return Purged(deleted=deleted, kept=kept, pages=pages, finished=position is None)


def _query(consumer: str | None) -> Query:
    # this machine's clock only chooses what is asked for; what goes is judged by the store's
    return Query(consumer=consumer, statuses=_FINISHED, expired_by=time.time(), page_size=1000)
