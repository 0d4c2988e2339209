"""Looking through records in Azure Table Storage, of either placement."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.data.tables import TableEntity, UpdateMode
from azure.data.tables.aio import TableClient

from ..documents import RESERVED, from_document, to_document
from ..keys import presentable, storage_id
from ..records import Record
from ..scanning import Found, Page, Placement, Query
from . import table_access as access
from .table import address_of

_MOST_OPERATIONS = 100
_POSITION = ("!purge", "position")
"""Where a purge notes how far it came: no consumer's partition has such a name."""


class TableScan:
    """The records of one table. Without a consumer, and beside the data, each page is a table scan."""

    def __init__(self, table: TableClient, *, placement: Placement) -> None:
        self._table = table
        self._prefix = RESERVED if placement is Placement.BESIDE_DATA else ""
        self.placement = placement

    @property
    def source(self) -> str:
        return self._table.table_name

    async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
        clauses, values = self._clauses(query)
        async for page in self._pages(clauses, values, query.page_size, resume):
            yield page

    async def find(self, consumer: str, key: str) -> Found | None:
        """Tried in the key's own partition first; a marker in another one takes a scan."""
        if self.placement is Placement.DEDICATED:
            partition, row = address_of(consumer, key)
            there = "PartitionKey eq @partition and RowKey eq @row"
            return await self._first([there], {"partition": partition, "row": row})
        of_key = [f"{RESERVED}consumer eq @consumer", f"{RESERVED}key eq @key"]
        values = {"consumer": presentable(consumer), "key": presentable(key)}
        partition = storage_id(key)
        at_home = ["PartitionKey eq @partition", of_key[0]]
        home = {"partition": partition, "consumer": values["consumer"]}
        async for page in self._pages(at_home, home, 1000, None):
            for found in page.records:
                if found.record.key == presentable(key):
                    return found
        if not values["key"].isprintable():
            return None  # no filter can carry it
        return await self._first(of_key, values)

    async def replace(self, found: Found, record: Record) -> Found | None:
        document = to_document(record, prefix=self._prefix)
        entity = access.to_entity(*found.address, document)
        etag = await access.replace(self._table, entity, etag=found.etag)
        if etag is None:
            return None
        return msgspec.structs.replace(found, record=record, etag=etag, age=0.0)

    async def delete(self, found: Found) -> bool:
        return await access.delete(self._table, *found.address, etag=found.etag)

    async def delete_all(self, found: list[Found]) -> int:
        partitions: dict[str, list[Found]] = {}
        for each in found:
            partitions.setdefault(each.address[0], []).append(each)
        deleted = 0
        for records in partitions.values():
            for batch in itertools.batched(records, _MOST_OPERATIONS, strict=False):
                deleted += await self._delete_batch(list(batch))
        return deleted

    async def position(self) -> str | None:
        noted = await access.answer(lambda: self._table.get_entity(*_POSITION), self._table)
        return None if isinstance(noted, int) else str(noted.get("position", "")) or None

    async def note_position(self, position: str | None) -> None:
        partition, row = _POSITION
        note = {"PartitionKey": partition, "RowKey": row, "position": position or ""}
        await access.answer(
            lambda: self._table.upsert_entity(note, mode=UpdateMode.REPLACE), self._table
        )

    async def _delete_batch(self, batch: list[Found]) -> int:
        """One entity group transaction, tried again without each record that changed meanwhile."""
        while batch:
            refused = await access.submit(self._table, [_deletion(each) for each in batch])
            if refused is None:
                return len(batch)
            batch = [each for n, each in enumerate(batch) if n != refused.index]
        return 0

    async def close(self) -> None:
        await self._table.close()

    def _clauses(self, query: Query) -> tuple[list[str], dict[str, Any]]:
        # entities without the property pass no comparison: business data, and the purge's own note
        clauses = [f"{self._prefix}status gt ''"]
        values: dict[str, Any] = {}
        if query.consumer is not None:
            clauses.append(f"{self._prefix}consumer eq @consumer")
            values["consumer"] = presentable(query.consumer)
            if self.placement is Placement.DEDICATED:
                clauses.append("PartitionKey ge @first and PartitionKey lt @last")
                partition = storage_id(query.consumer)
                values |= {"first": f"{partition}~", "last": f"{partition}~:"}
        if query.statuses:
            names = sorted(query.statuses)
            values |= {f"status{n}": str(name) for n, name in enumerate(names)}
            either = " or ".join(f"{self._prefix}status eq @status{n}" for n in range(len(names)))
            clauses.append(f"( {either} )")  # the SDK fills in whole words
        if query.expired_by is not None:
            clauses.append(f"{self._prefix}expires_at le @expired_by")
            values["expired_by"] = float(query.expired_by)
        if query.older_than is not None:
            # this machine's clock chooses what is asked for; ages are told by the service's
            clauses.append("Timestamp le @written_by")
            values["written_by"] = datetime.now(UTC) - timedelta(seconds=query.older_than)
        return clauses, values

    async def _first(self, clauses: list[str], values: dict[str, Any]) -> Found | None:
        async for page in self._pages(clauses, values, 1, None):
            if page.records:
                return page.records[0]
        return None

    async def _pages(
        self, clauses: list[str], values: dict[str, Any], size: int, resume: str | None
    ) -> AsyncIterator[Page]:
        dates: list[str] = []

        def note_date(response: Any) -> None:
            dates.append(response.http_response.headers.get("Date", ""))

        entities = self._table.query_entities(
            " and ".join(clauses),
            parameters=values,
            results_per_page=size,
            raw_response_hook=note_date,
        )
        pages: Any = entities.by_page(json.loads(resume) if resume else None)
        while True:
            try:
                async with asyncio.timeout(access.ANSWER_WITHIN):
                    try:
                        found = [entity async for entity in await anext(pages)]
                    except StopAsyncIteration:
                        return
            except HttpResponseError as error:
                if access.code_of(error) == "TableNotFound":
                    return
                raise access.unavailable(error) from error
            except (AzureError, OSError, TimeoutError) as error:
                raise access.unavailable(error) from error
            answered_at = parsedate_to_datetime(dates[-1]) if dates[-1] else datetime.now(UTC)
            token: Mapping[str, str] | None = pages.continuation_token
            yield Page(
                records=tuple(self._found(entity, answered_at) for entity in found),
                resume=json.dumps(token) if token else None,
            )

    def _found(self, entity: TableEntity, answered_at: datetime) -> Found:
        document = access.to_document(entity)
        consumer = str(document.get(f"{self._prefix}consumer", ""))
        key = str(document.get(f"{self._prefix}key", entity["RowKey"]))
        written_at = entity.metadata["timestamp"] or answered_at
        return Found(
            record=from_document(document, consumer=consumer, key=key, prefix=self._prefix),
            source=self.source,
            placement=self.placement,
            address=(str(entity["PartitionKey"]), str(entity["RowKey"])),
            etag=str(entity.metadata["etag"]),
            age=max(0.0, (answered_at - written_at).total_seconds()),
        )


def _deletion(found: Found) -> tuple[Any, ...]:
    """To be deleted if it is still the one that was found."""
    partition, row = found.address
    return (
        "delete",
        {"PartitionKey": partition, "RowKey": row},
        {"etag": found.etag, "match_condition": MatchConditions.IfNotModified},
    )
