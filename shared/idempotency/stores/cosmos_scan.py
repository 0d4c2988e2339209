"""Looking through records in Azure Cosmos DB for NoSQL, of either placement."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from azure.core.exceptions import AzureError, HttpResponseError

from ..documents import RESERVED, from_document, to_document
from ..keys import presentable
from ..records import Record
from ..scanning import Found, Page, Placement, Query
from .cosmos import address_of, expiry_of
from .cosmos_access import ANSWER_WITHIN, Container, age_of, unavailable, without_system


class CosmosScan:
    """The records of one container; queries go to every partition.

    ``partition_property`` is the property that the container is partitioned by.
    """

    def __init__(
        self, container: Container, *, placement: Placement, partition_property: str = "id"
    ) -> None:
        self._container = container
        self._items = container.items
        self._partition_property = partition_property
        self._prefix = RESERVED if placement is Placement.BESIDE_DATA else ""
        self.placement = placement
        self.source = container.items.id

    async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
        clauses, values = self._clauses(query)
        async for page in self._pages(clauses, values, query.page_size, resume):
            yield page

    async def find(self, consumer: str, key: str) -> Found | None:
        if self.placement is Placement.DEDICATED:
            clauses, values = ["c.id = @id"], {"@id": address_of(consumer, key)}
        else:
            clauses = [f"c.{RESERVED}consumer = @consumer", f"c.{RESERVED}key = @key"]
            values = {"@consumer": presentable(consumer), "@key": presentable(key)}
        async for page in self._pages(clauses, values, 1, None):
            if page.records:
                return page.records[0]
        return None

    async def replace(self, found: Found, record: Record) -> Found | None:
        document = {k: v for k, v in to_document(record, prefix=self._prefix).items() if k != "ttl"}
        item = {**document, "id": found.address[1], **expiry_of(record)}
        etag = await self._container.replace(item, etag=found.etag)
        if etag is None:
            return None
        return msgspec.structs.replace(found, record=record, etag=etag, age=0.0)

    async def delete(self, found: Found) -> bool:
        partition, id_ = found.address
        return await self._container.delete(id_, partition, etag=found.etag)

    async def close(self) -> None:
        await self._container.close()

    def _clauses(self, query: Query) -> tuple[list[str], dict[str, Any]]:
        clauses = [f"IS_DEFINED(c.{self._prefix}status)"]
        values: dict[str, Any] = {}
        if query.consumer is not None:
            clauses.append(f"c.{self._prefix}consumer = @consumer")
            values["@consumer"] = presentable(query.consumer)
        if query.statuses:
            clauses.append(f"ARRAY_CONTAINS(@statuses, c.{self._prefix}status)")
            values["@statuses"] = sorted(str(status) for status in query.statuses)
        if query.expired_by is not None:
            clauses.append(f"c.{self._prefix}expires_at <= @expired_by")
            values["@expired_by"] = query.expired_by
        if query.older_than is not None:
            clauses.append("c._ts <= @written_by")
            values["@written_by"] = int(time.time() - query.older_than)
        return clauses, values

    async def _pages(
        self, clauses: list[str], values: Mapping[str, Any], size: int, resume: str | None
    ) -> AsyncIterator[Page]:
        headers: dict[str, str] = {}

        def note_headers(answered: Mapping[str, str], *_: Any) -> None:
            headers.clear()
            headers.update(answered)

        items = self._items.query_items(
            f"SELECT * FROM c WHERE {' AND '.join(clauses)}",  # noqa: S608 - values are parameters
            parameters=[{"name": name, "value": value} for name, value in values.items()],
            max_item_count=size,
            response_hook=note_headers,
        )
        pages: Any = items.by_page(resume)
        while True:
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    try:
                        found = [item async for item in await anext(pages)]
                    except StopAsyncIteration:
                        return
            except HttpResponseError as error:
                if error.status_code == 404:
                    return
                raise unavailable(error) from error
            except (AzureError, OSError, TimeoutError) as error:
                raise unavailable(error) from error
            yield Page(
                records=tuple(self._found(item, headers) for item in found),
                resume=pages.continuation_token,
            )

    def _found(self, item: Mapping[str, Any], headers: Mapping[str, str]) -> Found:
        document = without_system(item)
        partition, id_ = str(item[self._partition_property]), str(item["id"])
        if self.placement is Placement.DEDICATED:
            del document["id"]
            document.pop("ttl", None)
        consumer = str(document.get(f"{self._prefix}consumer", ""))
        key = str(document.get(f"{self._prefix}key", id_))
        return Found(
            record=from_document(document, consumer=consumer, key=key, prefix=self._prefix),
            source=self.source,
            placement=self.placement,
            address=(partition, id_),
            etag=str(item["_etag"]),
            age=age_of(item, headers),
        )
