"""How many records there are of each kind, and how old the oldest is; bounded, and it says so."""

from collections.abc import Iterable

import msgspec

from .records import Status
from .scanning import Query, RecordScan

UNFINISHED = frozenset({Status.IN_PROGRESS, Status.UNCERTAIN, Status.RELEASED, Status.QUARANTINED})
"""What somebody, or a next delivery, has still to see to."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one consumer and status; ``oldest``: seconds since the longest unchanged was written."""

    consumer: str
    status: Status
    records: int
    oldest: float


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted; ``complete`` is False when the bound was reached before the end."""

    tallies: tuple[Tally, ...]
    complete: bool


async def survey(scans: Iterable[RecordScan], query: Query, *, most_pages: int) -> Survey:
    """Count the records that a query asks for, with so many requests for each place at most.

    Raises StoreUnavailable.
    """
    counts: dict[tuple[str, Status], tuple[int, float]] = {}
    complete = True
    for scan in scans:
        pages = 0
        async for page in scan.pages(query):
            for found in page.records:
                of = found.record.consumer, found.record.status
                records, oldest = counts.get(of, (0, 0.0))
                counts[of] = records + 1, max(oldest, found.age)
            pages += 1
            if pages >= most_pages and page.resume is not None:
                complete = False
                break
    return Survey(
        tallies=tuple(
            Tally(consumer=consumer, status=status, records=records, oldest=oldest)
            for (consumer, status), (records, oldest) in sorted(counts.items())
        ),
        complete=complete,
    )
