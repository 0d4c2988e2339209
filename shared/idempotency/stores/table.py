"""Records in Azure Table Storage, in a table of their own (dedicated placement).

PartitionKey is the consumer and a hash bucket, RowKey the key. A partition takes about 2,000
operations a second and a storage account 20,000: 64 buckets per consumer spread the load beyond the
account's own limit, and keep enough records together for a purge to delete 100 in one transaction.
An entity is at most 1 MiB, a text property 64 KiB: results are capped far below. There is no native
expiry: `expires_at` is purged by a timer.
"""

from azure.data.tables.aio import TableClient

from ..documents import from_document, to_document
from ..keys import bucket, storage_id
from ..records import Record, Stored
from . import table_access as access

_BUCKETS = 64
"""Part of every record's address: another number would not find the records that exist."""


class TableStore:
    """A store on one table, created at the first write if it is missing."""

    name = "table"

    def __init__(self, table: TableClient) -> None:
        self._table = table

    async def read(self, consumer: str, key: str) -> Stored | None:
        found = await access.read(self._table, *address_of(consumer, key))
        if found is None:
            return None
        entity, age = found
        document = access.to_document(entity)
        record = from_document(document, consumer=consumer, key=key)
        return Stored(record=record, etag=str(entity.metadata["etag"]), age=age)

    async def insert(self, record: Record) -> Stored | None:
        etag = await access.create(self._table, _entity(record))
        return None if etag is None else Stored(record=record, etag=etag)

    async def replace(self, record: Record, etag: str) -> Stored | None:
        written = await access.replace(self._table, _entity(record), etag=etag)
        return None if written is None else Stored(record=record, etag=written)

    async def delete(self, record: Record, etag: str) -> bool:
        return await access.delete(self._table, *address_of(record.consumer, record.key), etag=etag)

    async def close(self) -> None:
        await self._table.close()


def address_of(consumer: str, key: str) -> tuple[str, str]:
    """Partition and row of a record."""
    return f"{storage_id(consumer)}~{bucket(key, _BUCKETS):02d}", storage_id(key)


def _entity(record: Record) -> dict[str, object]:
    return access.to_entity(*address_of(record.consumer, record.key), to_document(record))
