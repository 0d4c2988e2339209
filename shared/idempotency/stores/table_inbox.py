"""The inbox in Azure Table Storage: one entity group transaction per message.

PartitionKey is the key, RowKey the document's id; the marker's id is the key's. A transaction takes
one partition, 100 operations and 4 MiB, and each entity at most once.
"""

from collections.abc import Mapping
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

from ..errors import BusinessConflict
from ..inbox import Marker, marker_of
from ..keys import storage_id
from ..unit_of_work import Operation
from . import table_access as access


class TableInbox:
    """Markers and business entities in one table, created at the first write if it is missing."""

    name = "table"

    def __init__(self, table: TableClient) -> None:
        self._table = table

    async def read(self, key: str) -> Marker | None:
        partition = storage_id(key)
        found = await access.read(self._table, partition, partition)
        if found is None:
            return None
        entity, age = found
        document = access.to_document(entity)
        return marker_of(document, key=key, etag=str(entity.metadata["etag"]), age=age)

    async def commit(
        self, key: str, marker: Mapping[str, Any], operations: tuple[Operation, ...]
    ) -> bool:
        partition = storage_id(key)
        transaction: list[Any] = [("create", access.to_entity(partition, partition, marker))]
        transaction += [_written(partition, operation) for operation in operations]

        async def submit() -> TableTransactionError | None:
            try:
                await self._table.submit_transaction(transaction)
            except TableTransactionError as error:
                if access.is_refusal(error):
                    return error
                raise
            return None

        refused = await access.answer(submit, self._table)
        if refused is None:
            return True
        if isinstance(refused, TableTransactionError) and refused.index:
            operation = operations[refused.index - 1]
            raise BusinessConflict(
                f"{operation.kind} of document {operation.id!r} was refused "
                f"({refused.status_code}); nothing was written",
                operation=refused.index - 1,
                status=refused.status_code or 0,
            )
        return False

    async def close(self) -> None:
        await self._table.close()


def _written(partition: str, operation: Operation) -> tuple[Any, ...]:
    entity = access.to_entity(partition, operation.id, operation.document or {})
    match operation.kind:
        case "create":
            return ("create", entity)
        case "upsert":
            return ("upsert", entity, {"mode": UpdateMode.REPLACE})
        case "replace":
            how = {"mode": UpdateMode.REPLACE, **_if_match(operation)}
            return ("update", entity, how)
        case "delete":
            return ("delete", entity, _if_match(operation))


def _if_match(operation: Operation) -> dict[str, Any]:
    return {"etag": operation.etag, "match_condition": MatchConditions.IfNotModified}
