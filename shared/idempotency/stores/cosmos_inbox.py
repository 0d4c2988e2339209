"""The inbox in Azure Cosmos DB for NoSQL: one transactional batch per message.

The partition key is the key itself, in a property of every document; the marker's id is the key's
storage form. A batch takes one logical partition, 100 operations and 2 MB; a logical partition
holds 20 GB.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from azure.cosmos.exceptions import CosmosBatchOperationError

from ..errors import BusinessConflict, ConfigurationError, MalformedContent
from ..inbox import Marker, marker_of
from ..keys import presentable, storage_id
from ..unit_of_work import Operation
from .cosmos_access import Container, age_of, without_system

_MOST_BYTES = 2_000_000


class CosmosInbox:
    """Markers and business documents in one container, partitioned by ``partition_property``."""

    name = "cosmos"

    def __init__(self, container: Container, *, partition_property: str) -> None:
        self._container = container
        self._items = container.items
        self._partition_property = partition_property

    async def read(self, key: str) -> Marker | None:
        item = await self._container.answer(
            lambda: self._items.read_item(storage_id(key), partition_key=_partition(key))
        )
        if isinstance(item, int):
            return None
        age = age_of(item, item.get_response_headers())
        document = without_system(item)
        return marker_of(document, key=key, etag=str(item["_etag"]), age=age)

    async def commit(
        self, key: str, marker: Mapping[str, Any], operations: tuple[Operation, ...]
    ) -> bool:
        if "ttl" in marker:
            raise ConfigurationError("a marker must not expire: it has no property ttl")
        batch: list[tuple[Any, ...]] = [("create", (self._item(key, storage_id(key), marker),))]
        batch += [self._written(key, operation) for operation in operations]

        _check_size(batch)

        async def execute() -> CosmosBatchOperationError | None:
            try:
                await self._items.execute_item_batch(batch, partition_key=_partition(key))
            except CosmosBatchOperationError as error:
                if error.status_code in (404, 409, 412):
                    return error
                raise
            return None

        refused = await self._container.answer(execute, creates=True)
        if refused is None:
            return True
        if isinstance(refused, CosmosBatchOperationError) and refused.error_index:
            operation = operations[refused.error_index - 1]
            raise BusinessConflict(
                f"{operation.kind} of document {operation.id!r} was refused "
                f"({refused.status_code}); nothing was written",
                operation=refused.error_index - 1,
                status=refused.status_code or 0,
            )
        return False

    async def close(self) -> None:
        await self._container.close()

    def _item(self, key: str, id_: str, document: Mapping[str, Any]) -> dict[str, Any]:
        place = {"id": id_, self._partition_property: _partition(key)}
        for name, value in place.items():
            if document.get(name, value) != value:
                raise ConfigurationError(
                    f"property {name} of document {id_!r} must be {value!r}, its place beside the "
                    "marker, or be left out"
                )
        return {**document, **place}

    def _written(self, key: str, operation: Operation) -> tuple[Any, ...]:
        item = self._item(key, operation.id, operation.document or {})
        match operation.kind:
            case "create" | "upsert":
                return (operation.kind, (item,))
            case "replace":
                return ("replace", (operation.id, item), {"if_match_etag": operation.etag})
            case "delete":
                return ("delete", (operation.id,), {"if_match_etag": operation.etag})


def _check_size(batch: list[tuple[Any, ...]]) -> None:
    """Refuse here what the service would: the whole of a batch has a limit."""
    try:
        size = len(msgspec.json.encode(batch))
    except UnicodeEncodeError as error:
        raise MalformedContent("a document holds half a surrogate pair") from error
    if size > _MOST_BYTES:
        raise MalformedContent(
            f"the documents of a transaction have {size} bytes; Cosmos DB takes {_MOST_BYTES}",
            reason="ContentTooLarge",
        )


def _partition(key: str) -> str:
    """The key itself; in its storage form when it is no text that JSON can carry."""
    return key if presentable(key) == key else storage_id(key)
