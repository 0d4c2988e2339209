"""Guarded documents in Azure Cosmos DB for NoSQL: one item each, in a partition of its own."""

from typing import Any

import msgspec

from ..errors import ConfigurationError, MalformedContent
from ..keys import storage_id
from ..states import Document, StoredState
from .cosmos_access import Container, without_system

PARTITION_PATH = "/id"
_MOST_BYTES = 2_000_000


class CosmosStateStore:
    """A store of states on one container with partition key path ``/id``."""

    name = "cosmos"

    def __init__(self, container: Container) -> None:
        self._container = container
        self._items = container.items

    async def read(self, id_: str) -> StoredState | None:
        address = storage_id(id_)
        item = await self._container.answer(lambda: self._items.read_item(address, address))
        if isinstance(item, int):
            return None
        document = without_system(item)
        del document["id"]
        return StoredState(document=document, etag=str(item["_etag"]))

    async def create(self, id_: str, document: Document) -> bool:
        return await self._container.create(_item(id_, document)) is not None

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        return await self._container.replace(_item(id_, document), etag=etag) is not None

    async def close(self) -> None:
        await self._container.close()


def _item(id_: str, document: Document) -> dict[str, Any]:
    """The item of a document. It never expires: its version would be forgotten with it."""
    taken = {"id", "ttl"} & document.keys()
    if taken:
        raise ConfigurationError(
            f"a guarded document has no properties named {sorted(taken)}: they are the item's own"
        )
    try:
        size = len(msgspec.json.encode(document))
    except UnicodeEncodeError as error:
        raise MalformedContent("a document holds half a surrogate pair") from error
    if size > _MOST_BYTES:
        raise MalformedContent(
            f"a document has {size} bytes; Cosmos DB takes {_MOST_BYTES}", reason="ContentTooLarge"
        )
    return {**document, "id": storage_id(id_)}
