"""Looking through the records of a store in memory."""

from collections.abc import AsyncIterator

from ..records import Record
from ..scanning import Found, Page, Placement, Query
from .memory import MemoryStore


class MemoryScan:
    """The records of one store in memory; in pages, so that tests see what pages do."""

    placement = Placement.DEDICATED

    def __init__(self, store: MemoryStore, *, source: str = "memory") -> None:
        self._store = store
        self.source = source

    async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
        start = int(resume or 0)
        addresses = sorted(self._store.addresses())
        while start < len(addresses):
            end = min(start + query.page_size, len(addresses))
            found = [await self.find(*address) for address in addresses[start:end]]
            yield Page(
                records=tuple(each for each in found if each and _passes(each, query)),
                resume=str(end) if end < len(addresses) else None,
            )
            start = end

    async def find(self, consumer: str, key: str) -> Found | None:
        stored = await self._store.read(consumer, key)
        if stored is None:
            return None
        return Found(
            record=stored.record,
            source=self.source,
            placement=self.placement,
            address=(consumer, key),
            etag=stored.etag,
            age=stored.age,
        )

    async def replace(self, found: Found, record: Record) -> Found | None:
        stored = await self._store.replace(record, found.etag)
        return None if stored is None else await self.find(*found.address)

    async def delete(self, found: Found) -> bool:
        return await self._store.delete(found.record, found.etag)

    async def close(self) -> None:
        await self._store.close()


def _passes(found: Found, query: Query) -> bool:
    record = found.record
    expired = query.expired_by
    return (
        query.consumer in (None, record.consumer)
        and (not query.statuses or record.status in query.statuses)
        and (query.older_than is None or found.age >= query.older_than)
        and (expired is None or (record.expires_at is not None and record.expires_at <= expired))
    )
