"""For tests: the contract that every store with an outbox has to keep, beside that of an inbox store.

Subclass it as those in `testing`. Sweeps look at the whole store, so the store should be the test's own.
"""
# ruff: noqa: S101 - an assertion is what a test does

import asyncio
import itertools
import uuid
from typing import Any

import msgspec

from ..inbox_store import Operation, Refused
from ..outbox import Message, OutboxStore, Parcel, pending_id
from .records import HOSTILE_KEYS

NOW = 1_700_000_000.25
_numbers = itertools.count()


def a_parcel(partition: str | None = None, *bodies: bytes, **fields: Any) -> Parcel:
    """A parcel of an owner of its own, due at NOW."""
    owner = uuid.uuid4().hex
    messages = tuple(
        Message(
            destination="order-events",
            message_id=f"{owner}-{ordinal}",
            ordinal=ordinal,
            body=body,
            properties={"kind": "OrderPlaced", "count": 2, "share": 0.5, "last": True},
            session_id="\u00e9 session",
            trace_parent="00-11-22-01",
            enqueued_at=NOW - 60.0,
        )
        for ordinal, body in enumerate(bodies or (b'{"n": 1}',), 1)
    )
    parcel = Parcel(
        partition=partition or uuid.uuid4().hex,
        owner=owner,
        messages=messages,
        due_at=NOW,
        announced_at=NOW - 60.0,
    )
    return msgspec.structs.replace(parcel, **fields)


class OutboxContract:
    """What every `OutboxStore` promises."""

    async def _committed(self, store: OutboxStore, parcel: Parcel) -> None:
        if store.announces:
            await store.announce(parcel)
        assert await store.commit(parcel.partition, parcel.pending()) is None

    async def _due(self, store: OutboxStore, now: float = NOW + 1.0) -> dict[str, Parcel]:
        return {parcel.owner: parcel for parcel in await store.due(now, 1000)}

    async def test_what_was_committed_is_found_when_it_is_due_and_not_before(
        self, store: OutboxStore
    ) -> None:
        parcel = a_parcel(None, b"first", "\u00e9\U0001f600".encode(), b"\xff\x00", b"")
        await self._committed(store, parcel)
        assert parcel.owner not in await self._due(store, NOW - 1.0)
        found = (await self._due(store))[parcel.owner]
        assert msgspec.structs.replace(found, etags=()) == parcel

    async def test_what_was_cleared_is_not_found_any_more(self, store: OutboxStore) -> None:
        parcel = a_parcel(None, b"first", b"second")
        await self._committed(store, parcel)
        first, second = (
            Operation(kind="delete", id=pending_id(parcel.owner, ordinal)) for ordinal in (1, 2)
        )
        assert await store.commit(parcel.partition, (first,)) is None
        left = (await self._due(store))[parcel.owner]
        assert [message.body for message in left.messages] == [b"second"]
        assert await store.commit(parcel.partition, (second,)) is None
        if store.announces:
            await store.forget(left)
            await store.forget(left)  # once or twice, it is the same
        assert parcel.owner not in await self._due(store)

    async def test_of_ten_that_claim_a_parcel_one_succeeds_and_it_is_due_later(
        self, store: OutboxStore
    ) -> None:
        parcel = a_parcel(None, b"first", b"second")
        await self._committed(store, parcel)
        found = (await self._due(store))[parcel.owner]
        claims = await asyncio.gather(*(store.postpone(found, NOW + 60.0) for _ in range(10)))
        [claimed] = [claim for claim in claims if claim is not None]
        assert (claimed.sends, claimed.due_at) == (1, NOW + 60.0)
        assert claimed.messages == found.messages
        assert parcel.owner not in await self._due(store, NOW + 59.0)
        again = (await self._due(store, NOW + 61.0))[parcel.owner]
        assert (again.sends, again.messages) == (1, parcel.messages)
        assert await store.postpone(found, NOW + 60.0) is None, "a claim of what was is refused"
        second = await store.postpone(again, NOW + 120.0)
        assert second is not None
        assert second.sends == 2

    async def test_a_claimed_parcel_is_cleared_and_forgotten_as_claimed(
        self, store: OutboxStore
    ) -> None:
        parcel = a_parcel()
        await self._committed(store, parcel)
        claimed = await store.postpone((await self._due(store))[parcel.owner], NOW + 60.0)
        assert claimed is not None
        delete = Operation(kind="delete", id=pending_id(parcel.owner, 1))
        assert await store.commit(parcel.partition, (delete,)) is None
        if store.announces:
            await store.forget(claimed)
        assert parcel.owner not in await self._due(store, NOW + 1000.0)

    async def test_parcels_of_one_partition_are_apart(self, store: OutboxStore) -> None:
        partition = uuid.uuid4().hex
        parcels = [a_parcel(partition, b"%d" % n) for n in range(3)]
        for parcel in parcels:
            await self._committed(store, parcel)
        found = await self._due(store)
        for parcel in parcels:
            assert found[parcel.owner].messages == parcel.messages

    async def test_what_is_due_first_comes_first_and_only_so_many(self, store: OutboxStore) -> None:
        long_ago = NOW - 100_000.0
        parcels = [a_parcel(due_at=long_ago + n) for n in (3, 1, 2)]
        for parcel in parcels:
            await self._committed(store, parcel)
        found = await store.due(long_ago + 10.0, 1000)
        assert [p.due_at - long_ago for p in found] == [1, 2, 3]
        assert len(await store.due(long_ago + 10.0, 2)) == 2

    async def test_parcels_lie_in_whatever_partition_a_key_can_name(
        self, store: OutboxStore
    ) -> None:
        run = uuid.uuid4().hex[:8]
        parcels = [a_parcel(f"{run}{key[: 1024 - len(run)]}") for key in HOSTILE_KEYS[:-1]]
        for parcel in parcels:
            await self._committed(store, parcel)
        found = await self._due(store)
        for parcel in parcels:
            assert found[parcel.owner].messages == parcel.messages, ascii(parcel.partition)
            delete = Operation(kind="delete", id=pending_id(parcel.owner, 1))
            assert await store.commit(found[parcel.owner].partition, (delete,)) is None

    async def test_pending_documents_are_part_of_the_transaction(self, store: OutboxStore) -> None:
        parcel = a_parcel()
        taken = Operation(kind="create", id="order", document={"total": "1"})
        await store.commit(parcel.partition, (taken,))
        answer = await store.commit(parcel.partition, (*parcel.pending(), taken))
        assert answer == Refused(index=1, status=409)
        assert parcel.owner not in await self._due(store)

    async def test_a_pointer_whose_commit_never_came_leads_to_no_messages(
        self, store: OutboxStore
    ) -> None:
        if not store.announces:
            return
        parcel = a_parcel()
        await store.announce(parcel)
        await store.announce(parcel)  # once or twice, it is the same
        found = (await self._due(store))[parcel.owner]
        assert found.messages == ()
        assert found.partition == parcel.partition
        await store.forget(found)
        assert parcel.owner not in await self._due(store)
