"""The inbox in Azure Table Storage: one entity group transaction per message.

PartitionKey is the partition in its storage form, RowKey the document's id. A transaction takes one
partition, 100 operations and 4 MiB, and each entity at most once. An entity is at most 1 MiB, a text
property 64 KiB; a partition takes about 2,000 entities a second, a storage account 20,000.
"""

from typing import Any

import msgspec
from azure.core import MatchConditions
from azure.data.tables import UpdateMode
from azure.data.tables.aio import TableClient

from ..errors import ConfigurationError, MalformedContent
from ..inbox_store import Operation, Refused, StoredDocument
from ..keys import storage_id
from ..outbox import Parcel
from . import table_access as access
from .table_pointers import Pointers

_MOST_BYTES = 4 * 1024 * 1024
_OVERHEAD = 1024
"""Bytes that an operation's headers take in a transaction's body, at the most."""


class TableInbox:
    """Markers and business entities in one table, created at the first write if it is missing.

    Pending messages are found through pointers, written before their transaction: see `Pointers`.
    """

    name = "table"
    announces = True

    def __init__(self, table: TableClient) -> None:
        self._table = table
        self._pointers = Pointers(table)

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        found = await access.read(self._table, storage_id(partition), id_)
        if found is None:
            return None
        entity, age = found
        document = access.to_document(entity)
        return StoredDocument(document=document, etag=str(entity.metadata["etag"]), age=age)

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        transaction = _transaction(storage_id(partition), operations)
        refused = await access.submit(self._table, transaction)
        if refused is None:
            return None
        return Refused(index=refused.index or 0, status=refused.status_code or 0)

    async def announce(self, parcel: Parcel) -> None:
        await self._pointers.write(parcel)

    async def forget(self, parcel: Parcel) -> None:
        await self._pointers.delete(parcel)

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        return await self._pointers.due(now, limit)

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        return await self._pointers.move(parcel, until)

    async def close(self) -> None:
        await self._table.close()


def _transaction(partition: str, operations: tuple[Operation, ...]) -> list[Any]:
    """The operations as the SDK takes them; refused here when the service would refuse them."""
    transaction = []
    size = 0
    for operation in operations:
        if operation.increment:
            raise ConfigurationError(
                f"{operation}: Table Storage has no increment; read the document and replace it"
            )
        try:
            entity = access.to_entity(partition, operation.id, operation.document)
        except MalformedContent as error:
            raise MalformedContent(f"{operation}: {error}", reason=error.reason) from error
        size += _OVERHEAD + len(msgspec.json.encode(operation.document))
        if size > _MOST_BYTES:
            raise MalformedContent(
                f"{operation}: with it the transaction has {size} bytes; Table Storage takes "
                f"{_MOST_BYTES}",
                reason="ContentTooLarge",
            )
        transaction.append(_written(entity, operation))
    return transaction


def _written(entity: dict[str, Any], operation: Operation) -> tuple[Any, ...]:
    condition: dict[str, Any] = {}
    if operation.etag:
        condition = {"etag": operation.etag, "match_condition": MatchConditions.IfNotModified}
    match operation.kind:
        case "create":
            return ("create", entity)
        case "upsert":
            return ("upsert", entity, {"mode": UpdateMode.REPLACE})
        case "replace":
            return ("update", entity, {"mode": UpdateMode.REPLACE, **condition})
        case "patch":
            return ("update", entity, {"mode": UpdateMode.MERGE, **condition})
        case "delete":
            return ("delete", entity, condition)
