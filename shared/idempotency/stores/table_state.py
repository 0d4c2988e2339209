"""Guarded documents in Azure Table Storage: one entity each, in a partition of its own.

PartitionKey and RowKey are both the id: every call is a point operation, and no partition is hot but
that of a thing which changes that often by itself.
"""

from typing import Any

from azure.core import MatchConditions
from azure.data.tables import UpdateMode
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
        entity = _entity(id_, document)
        answer = await access.answer(lambda: self._table.create_entity(entity), self._table)
        return not isinstance(answer, int)

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        entity = _entity(id_, document)
        answer = await access.answer(
            lambda: self._table.update_entity(
                entity,
                mode=UpdateMode.REPLACE,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
            ),
            self._table,
        )
        return not isinstance(answer, int)

    async def close(self) -> None:
        await self._table.close()


def _entity(id_: str, document: Document) -> dict[str, Any]:
    address = storage_id(id_)
    return access.to_entity(address, address, document)
