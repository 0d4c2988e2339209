"""Guarded documents in Azure Table Storage: one entity each, in a partition of its own.

PartitionKey and RowKey are both the id: every call is a point operation, and no partition is hot but
that of a thing which changes that often by itself.
"""

from typing import Any

from azure.data.tables.aio import TableClient

from ..keys import storage_id
from ..states import Document, StoredState
from . import table_access as access


class TableStateStore:
    """A store of states on one table, created at the first write if it is missing."""

    name = "table"

    def __init__(self, table: TableClient) -> None:
        self._table = table

    async def read(self, id_: str) -> StoredState | None:
        address = storage_id(id_)
        found = await access.read(self._table, address, address)
        if found is None:
            return None
        entity, _ = found
        return StoredState(document=access.to_document(entity), etag=str(entity.metadata["etag"]))

    async def create(self, id_: str, document: Document) -> bool:
        return await access.create(self._table, _entity(id_, document)) is not None

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        return await access.replace(self._table, _entity(id_, document), etag=etag) is not None

    async def close(self) -> None:
        await self._table.close()


def _entity(id_: str, document: Document) -> dict[str, Any]:
    address = storage_id(id_)
    return access.to_entity(address, address, document)
