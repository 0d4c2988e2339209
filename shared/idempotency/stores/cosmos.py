"""Records in Azure Cosmos DB for NoSQL, in a container of their own (dedicated placement).

The partition key is the item's id: one logical partition per key, so that no logical partition
nears its 20 GB or 10,000 RU/s, and every call is a point operation. An item is at most 2 MB: results are
capped far below. Finished records get a native `ttl`; unfinished and quarantined ones never do, whatever
the container's default (set it to -1).
"""

from typing import Any

from ..documents import from_document, to_document
from ..keys import storage_id
from ..records import Record, Stored
from .cosmos_access import Container, age_of, without_system

PARTITION_PATH = "/id"


class CosmosStore:
    """A store on one container with partition key path ``/id``."""

    name = "cosmos"

    def __init__(self, container: Container) -> None:
        self._container = container
        self._items = container.items

    async def read(self, consumer: str, key: str) -> Stored | None:
        address = address_of(consumer, key)
        item = await self._container.answer(lambda: self._items.read_item(address, address))
        if isinstance(item, int):
            return None
        document = without_system(item)
        del document["id"]
        document.pop("ttl", None)
        return Stored(
            record=from_document(document, consumer=consumer, key=key),
            etag=str(item["_etag"]),
            age=age_of(item, item.get_response_headers()),
        )

    async def insert(self, record: Record) -> Stored | None:
        etag = await self._container.create(_item(record))
        return None if etag is None else Stored(record=record, etag=etag)

    async def replace(self, record: Record, etag: str) -> Stored | None:
        written = await self._container.replace(_item(record), etag=etag)
        return None if written is None else Stored(record=record, etag=written)

    async def delete(self, record: Record, etag: str) -> bool:
        address = address_of(record.consumer, record.key)
        return await self._container.delete(address, address, etag=etag)

    async def close(self) -> None:
        await self._container.close()


def address_of(consumer: str, key: str) -> str:
    """Id and partition of a record."""
    return f"{storage_id(consumer)}~{storage_id(key)}"


def _item(record: Record) -> dict[str, Any]:
    return {
        "id": address_of(record.consumer, record.key),
        **to_document(record),
        **expiry_of(record),
    }


def expiry_of(record: Record) -> dict[str, int]:
    """The native `ttl` of a finished record, which counts from its last write; none of any other."""
    if not record.status.is_finished or record.expires_at is None:
        return {}
    return {"ttl": max(1, int(record.expires_at - (record.finished_at or 0)))}
