"""Stores and consumers that break one rule each: the explorer has to find every one of them."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.idempotency import Consumer, Record, Status, Store, Stored
from shared.idempotency.clock import Clock
from shared.idempotency.exploration import CONSUMER
from shared.idempotency.inbox_store import InboxStore, Operation, Refused, StoredDocument
from shared.idempotency.protected import Protected
from shared.idempotency.records import Policy
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox


class CompletesUnfenced(MemoryStore):
    """A completion is written whatever the etag."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is Status.COMPLETED:
            return await _put(self, record)
        return await super().replace(record, etag)


class DeletesUnconditionally(MemoryStore):
    """A release deletes whoever's record is there."""

    async def delete(self, record: Record, etag: str) -> bool:
        held = await self.read(record.consumer, record.key)
        return held is not None and await super().delete(held.record, held.etag)


class LeaseNeverEnds(MemoryStore):
    """The record of a dead attempt always looks as if it had just been written."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await super().read(consumer, key)
        return None if held is None else msgspec.structs.replace(held, age=0.0)


class LeaseIsIgnored(MemoryStore):
    """Every record looks as if its lease were long over."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await super().read(consumer, key)
        return None if held is None else msgspec.structs.replace(held, age=math.inf)


class ContentIsIgnored(MemoryStore):
    """Records come back without their fingerprint, so that any content is the same."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await super().read(consumer, key)
        if held is None or not held.record.status.is_finished:
            return held
        return msgspec.structs.replace(held, record=held.record.replaced(fingerprint=None))


class ResultIsLost(MemoryStore):
    """Duplicates are answered without the recorded result."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await super().read(consumer, key)
        if held is None:
            return None
        return msgspec.structs.replace(held, record=held.record.replaced(result=None))


class Overwrites(MemoryStore):
    """Takes ``*`` for any etag, for mutants that write without a condition."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        return await (_put(self, record) if etag == "*" else super().replace(record, etag))


class Passing:
    """Hands every call on to the explored store; a mutant changes one of them."""

    name = "mutant"

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    async def read(self, consumer: str, key: str) -> Stored | None:
        return await self._inner.read(consumer, key)

    async def insert(self, record: Record) -> Stored | None:
        return await self._inner.insert(record)

    async def replace(self, record: Record, etag: str) -> Stored | None:
        return await self._inner.replace(record, etag)

    async def delete(self, record: Record, etag: str) -> bool:
        return await self._inner.delete(record, etag)

    async def close(self) -> None:
        return None


class ChecksThenInserts(Passing):
    """Looks whether there is a record, then writes one."""

    async def insert(self, record: Record) -> Stored | None:
        if await self._inner.read(record.consumer, record.key) is not None:
            return None
        return await self._inner.replace(record, "*")


class TakesItselfForAStranger(Passing):
    """After a refused write, whatever is there counts as another attempt's, even our own write."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._refused = False

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await self._inner.read(consumer, key)
        refused, self._refused = self._refused, False
        if held is None or not refused:
            return held
        return msgspec.structs.replace(held, record=held.record.replaced(owner="a stranger"))

    async def replace(self, record: Record, etag: str) -> Stored | None:
        written = await self._inner.replace(record, etag)
        self._refused = written is None
        return written


class AnswersBeforeItIsWritten(Passing):
    """Says that a completion is written while it is under way."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is not Status.COMPLETED:
            return await self._inner.replace(record, etag)
        self._writing = asyncio.create_task(self._inner.replace(record, etag))
        return Stored(record=record, etag=etag)


def renews_past_its_deadline(store: Store, clock: Clock, policy: Policy) -> Protected:
    """A consumer whose heartbeat goes on long after the promised deadline."""
    longer = msgspec.structs.replace(policy, deadline=400)
    return Consumer(CONSUMER, store, policy=longer, clock=clock)


class MarkerIsOverwritten(MemoryInbox):
    """A marker that is there does not stop a transaction."""

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        blunt = tuple(
            Operation(kind="upsert", id=operation.id, document=operation.document)
            for operation in operations
        )
        return await super().commit(partition, blunt)


class WritesInTwoTransactions:
    """An inbox store that writes the marker first, and the documents after it."""

    name = "mutant"

    def __init__(self, inner: InboxStore) -> None:
        self._inner = inner

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        return await self._inner.read(partition, id_)

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        refused = await self._inner.commit(partition, operations[:1])
        return refused or await self._inner.commit(partition, operations[1:])

    async def close(self) -> None:
        return None


class ForgetsItsOperations(MemoryInbox):
    """Keeps the marker of a transaction and drops the rest."""

    def documents(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        return dict(list(super().documents().items())[:1])


async def _put(store: MemoryStore, record: Record) -> Stored | None:
    """Write a record whatever is there."""
    held = await store.read(record.consumer, record.key)
    if held is None:
        return await MemoryStore.insert(store, record)
    return await MemoryStore.replace(store, record, held.etag)
