"""The inbox in Azure Cosmos DB for NoSQL: one transactional batch per message.

The partition key is the inbox's partition, in a property of every document. A batch takes one logical
partition, 100 operations and 2 MB; a logical partition holds 20 GB and takes 10,000 RU/s. The operation
that fails has the code of what is wrong, the others 424; nothing is done.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from azure.cosmos.exceptions import CosmosBatchOperationError

from ..documents import RESERVED, is_marker
from ..errors import ConfigurationError, MalformedContent, StoreUnavailable
from ..inbox_store import Operation, Refused, StoredDocument
from ..keys import presentable, storage_id
from ..outbox import DUE_AT, Parcel, parcels_in, postponed
from .cosmos_access import Container, age_of, without_system

_MOST_BYTES = 2_000_000
_DUE = f"SELECT * FROM c WHERE c.{DUE_AT} <= @now"  # noqa: S608 - our own constant


class CosmosInbox:
    """Markers and business documents in one container, partitioned by ``partition_property``.

    Pending messages are found by a query over all partitions on a property that only they have: the
    container's index holds it, unless its indexing policy leaves out ``idempotency_due_at``.
    """

    name = "cosmos"
    announces = False

    def __init__(self, container: Container, *, partition_property: str) -> None:
        self._container = container
        self._items = container.items
        self._partition_property = partition_property

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        item = await self._container.answer(
            lambda: self._items.read_item(id_, partition_key=_partition_key(partition))
        )
        if isinstance(item, int):
            return None
        age = age_of(item, item.get_response_headers())
        document = without_system(item)
        del document["id"]
        document.pop("ttl", None)
        return StoredDocument(document=document, etag=str(item["_etag"]), age=age)

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        batch = self._batch(partition, operations)

        async def execute() -> CosmosBatchOperationError | None:
            try:
                await self._items.execute_item_batch(batch, partition_key=_partition_key(partition))
            except CosmosBatchOperationError as error:
                if error.status_code in (404, 409, 412):
                    return error
                raise
            return None

        refused = await self._container.answer(execute, creates=True)
        if isinstance(refused, int):
            raise StoreUnavailable(f"Cosmos DB answered {refused} to a whole batch")
        if refused is None:
            return None
        return Refused(index=refused.error_index or 0, status=refused.status_code or 0)

    async def announce(self, parcel: Parcel) -> None:
        """Nothing to do: pending documents are found by themselves."""

    async def forget(self, parcel: Parcel) -> None:
        """Nothing to do."""

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        async def found() -> list[tuple[str, StoredDocument]]:
            items = self._items.query_items(
                _DUE, parameters=[{"name": "@now", "value": now}], max_item_count=limit
            )
            pending = []
            async for item in items:
                stored = StoredDocument(document=without_system(item), etag=str(item["_etag"]))
                pending.append((str(item[self._partition_property]), stored))
                if len(pending) == limit:
                    break
            return pending

        answer = await self._container.answer(found)
        return () if isinstance(answer, int) else parcels_in(answer, limit=limit)

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        claimed, claims = postponed(parcel, until)
        return claimed if await self.commit(parcel.partition, claims) is None else None

    async def close(self) -> None:
        await self._container.close()

    def _batch(self, partition: str, operations: tuple[Operation, ...]) -> list[tuple[Any, ...]]:
        """The operations as the SDK takes them; refused here when the service would refuse them."""
        batch = []
        size = 0
        for operation in operations:
            written = self._written(partition, operation)
            try:
                size += len(msgspec.json.encode(written))
            except UnicodeEncodeError as error:
                raise MalformedContent(f"{operation}: it holds half a surrogate pair") from error
            if size > _MOST_BYTES:
                raise MalformedContent(
                    f"{operation}: with it the transaction has {size} bytes; Cosmos DB takes "
                    f"{_MOST_BYTES}",
                    reason="ContentTooLarge",
                )
            batch.append(written)
        return batch

    def _written(self, partition: str, operation: Operation) -> tuple[Any, ...]:
        condition = {"if_match_etag": operation.etag} if operation.etag else {}
        match operation.kind:
            case "create" | "upsert":
                return (operation.kind, (self._item(partition, operation),))
            case "replace":
                return ("replace", (operation.id, self._item(partition, operation)), condition)
            case "patch":
                return ("patch", (operation.id, self._patches(operation)), condition)
            case "delete":
                return ("delete", (operation.id,), condition)

    def _item(self, partition: str, operation: Operation) -> dict[str, Any]:
        document = operation.document
        place = {"id": operation.id, self._partition_property: _partition_key(partition)}
        for name, value in place.items():
            if document.get(name, value) != value:
                raise ConfigurationError(
                    f"{operation}: its property {name} must be {value!r}, its place beside the marker, "
                    "or be left out"
                )
        return {**document, **place, **_expiry(operation)}

    def _patches(self, operation: Operation) -> list[dict[str, Any]]:
        fixed = {"id", "ttl", self._partition_property} & {
            *operation.document,
            *operation.increment,
        }
        if fixed:
            raise ConfigurationError(
                f"{operation}: {sorted(fixed)} cannot be patched: they are the item's place and its life"
            )
        changes = (("set", operation.document), ("incr", operation.increment))
        return [
            {"op": op, "path": _path(name), "value": value}
            for op, fields in changes
            for name, value in fields.items()
        ]


def _expiry(operation: Operation) -> Mapping[str, int]:
    """A plain marker goes by itself; a business entity that is a marker must not."""
    document = operation.document
    if not is_marker(document):
        return {}
    expires_at = document.get(f"{RESERVED}expires_at")
    if expires_at is not None:
        return {"ttl": max(1, int(expires_at - document[f"{RESERVED}finished_at"]))}
    if "ttl" in document:
        raise ConfigurationError(f"{operation}: a marker must not expire: it has no property ttl")
    return {}


def _path(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _partition_key(partition: str) -> str:
    """The partition itself; in its storage form when it is no text that JSON can carry."""
    return partition if presentable(partition) == partition else storage_id(partition)
