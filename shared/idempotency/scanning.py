"""Looking through records as an operator does: many at once, in pages, and changing one by hand.

Beside `Store`, which knows one record by its key and nothing else. Consumers never scan.
"""

from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Protocol

import msgspec

from .errors import IdempotencyError
from .records import Record, Status


class Placement(StrEnum):
    """Where records lie."""

    DEDICATED = "dedicated"
    """In a table or container of their own, for the two-phase form."""
    BESIDE_DATA = "beside the data"
    """Markers among business documents, for the inbox."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are asked for; everything, when nothing is said.

    ``older_than``: only those last written at least so many seconds ago, by the store's clock.
    ``expired_by``: only finished ones whose retention ended before this time, seconds since the epoch.
    ``page_size``: how many records one request may bring, at most 1,000.
    """

    consumer: str | None = None
    statuses: frozenset[Status] = frozenset()
    older_than: float | None = None
    expired_by: float | None = None
    page_size: int = 200


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A record where it lies.

    ``source`` is the table or container, ``address`` its place in there. ``etag`` fences the next
    write. ``age`` is how many seconds ago it was last written, by the store's clock.
    """

    record: Record
    source: str
    placement: Placement
    address: tuple[str, str]
    etag: str
    age: float


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What one request brought. ``resume`` is where a later scan may go on; None after the last page.

    A page may be empty and not be the last: a service ends a request by time, too.
    """

    records: tuple[Found, ...]
    resume: str | None


class RecordScan(Protocol):
    """The records of one table or container.

    Raises StoreUnavailable as a Store does. A table or container that is missing is empty.
    """

    @property
    def source(self) -> str:
        """The table's or container's name."""
        ...

    @property
    def placement(self) -> Placement: ...

    def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
        """The records that a query asks for, one request per page, in the store's own order.

        Whoever iterates says when it is enough: nothing is fetched ahead.
        """
        ...

    async def find(self, consumer: str, key: str) -> Found | None:
        """The record of one key; may take a scan where it lies beside the data."""
        ...

    async def replace(self, found: Found, record: Record) -> Found | None:
        """Replace the whole record if it is still the one that was found; None when it is not."""
        ...

    async def delete(self, found: Found) -> bool:
        """Delete the record if it is still the one that was found; False when it is not."""
        ...

    async def close(self) -> None:
        """Let go of connections; the scan is not used afterwards."""
        ...


class SeveralRecords(IdempotencyError):
    """More than one place holds a record of one consumer and key."""


async def find_in(
    scans: Iterable[RecordScan], consumer: str, key: str
) -> tuple[RecordScan, Found] | None:
    """The one record of (consumer, key) among several places, and the place; None when there is none.

    Raises SeveralRecords, naming the places, rather than choosing one.
    """
    hits = [(scan, found) for scan in scans if (found := await scan.find(consumer, key))]
    if len(hits) > 1:
        places = " and ".join(scan.source for scan, _ in hits)
        raise SeveralRecords(f"consumer {consumer} has a record of this key in {places}")
    return hits[0] if hits else None


async def first_of(
    scans: Iterable[RecordScan], query: Query, *, limit: int, most_pages: int
) -> tuple[list[Found], bool]:
    """The first ``limit`` records, and whether there are, or may be, more.

    ``most_pages``: requests that each place may cost; a filter that few records pass takes many.
    """
    found: list[Found] = []
    more = False
    for scan in scans:
        pages = 0
        async for page in scan.pages(query):
            found.extend(page.records)
            pages += 1
            if len(found) > limit:
                return found[:limit], True
            if pages >= most_pages and page.resume is not None:
                more = True
                break
    return found, more
