"""Pointers to the pending messages in a table, which no query finds by what they are.

Table Storage has an index on partition and row key alone. So before a transaction with messages is
sent, a pointer to its partition is written into one of a few partitions that are known, under a row key
that begins with the time from which on a sweeper may act. That is a round trip of its own. Claiming a
pointer moves it to a later time, by one transaction.
"""

import asyncio
import json

import msgspec
from azure.data.tables.aio import TableClient

from ..inbox_store import StoredDocument
from ..keys import bucket, storage_id
from ..outbox import Parcel, parcels_in, pending_ids
from . import table_access as access

_BUCKETS = 8
"""Partitions of pointers: one takes about a thousand messages a second."""
_MICROSECONDS = 1_000_000


class Pointers:
    """The pointers in one table. Their partitions are named as no key's is."""

    def __init__(self, table: TableClient) -> None:
        self._table = table

    async def write(self, parcel: Parcel) -> None:
        """Once or twice, it is the same."""
        await access.answer(lambda: self._table.upsert_entity(_entity(parcel)), self._table)

    async def delete(self, parcel: Parcel) -> None:
        """If it is still there."""
        partition, row = _address(parcel)
        # without a condition the SDK takes a missing entity for deleted
        await access.answer(lambda: self._table.delete_entity(partition, row), self._table)

    async def move(self, parcel: Parcel, until: float) -> Parcel | None:
        """To a later time; None when somebody else was first."""
        moved = msgspec.structs.replace(parcel, due_at=until, sends=parcel.sends + 1)
        transaction = [("delete", _entity(parcel)), ("create", _entity(moved))]
        refused = await access.submit(self._table, transaction)
        return moved if refused is None else None

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        """What pointers lead to: one query for each bucket, and one for each pointer that is due."""
        found = await asyncio.gather(*(self._in_bucket(n, now, limit) for n in range(_BUCKETS)))
        pointers = sorted((p for each in found for p in each), key=lambda p: p.due_at)[:limit]
        return tuple([await self._with_messages(pointer) for pointer in pointers])

    async def _in_bucket(self, number: int, now: float, limit: int) -> list[Parcel]:
        async def query() -> list[Parcel]:
            entities = self._table.query_entities(
                "PartitionKey eq @bucket and RowKey lt @now",
                parameters={"bucket": _bucket(number), "now": _row(now, "")},
                results_per_page=limit,
            )
            async for page in entities.by_page():
                return [
                    Parcel(
                        partition=json.loads(str(entity["partition"])),
                        owner=str(entity["owner"]),
                        messages=(),
                        due_at=float(entity["due_at"]),
                        announced_at=float(entity["announced_at"]),
                        sends=int(entity["sends"]),
                    )
                    async for entity in page
                ]
            return []

        answer = await access.answer(query, self._table)
        return [] if isinstance(answer, int) else answer

    async def _with_messages(self, pointer: Parcel) -> Parcel:
        async def query() -> list[tuple[str, StoredDocument]]:
            first, after = pending_ids(pointer.owner)
            entities = self._table.query_entities(
                "PartitionKey eq @partition and RowKey ge @first and RowKey lt @after",
                parameters={
                    "partition": storage_id(pointer.partition),
                    "first": first,
                    "after": after,
                },
            )
            return [
                (
                    pointer.partition,
                    StoredDocument(document=access.to_document(entity), etag=""),
                )
                async for entity in entities
            ]

        answer = await access.answer(query, self._table)
        parcels = () if isinstance(answer, int) else parcels_in(answer, limit=1)
        messages = parcels[0].messages if parcels else ()
        return msgspec.structs.replace(pointer, messages=messages)


def _entity(parcel: Parcel) -> dict[str, str | int | float]:
    partition, row = _address(parcel)
    return {
        "PartitionKey": partition,
        "RowKey": row,
        # as JSON, which is ASCII: a partition is any text, half surrogate pairs included
        "partition": json.dumps(parcel.partition),
        "owner": parcel.owner,
        "due_at": parcel.due_at,
        "announced_at": parcel.announced_at,
        "sends": parcel.sends,
    }


def _address(parcel: Parcel) -> tuple[str, str]:
    return _bucket(bucket(parcel.owner, _BUCKETS)), _row(parcel.due_at, parcel.owner)


def _bucket(number: int) -> str:
    return f"!outbox-{number}"


def _row(instant: float, owner: str) -> str:
    return f"{round(instant * _MICROSECONDS):017}-{owner}"
