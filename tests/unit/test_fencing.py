"""The record of one attempt: its writes are ordered, fenced, and end with its conclusion."""

import asyncio

import pytest

from shared.idempotency import Status, Stored, StoreUnavailable
from shared.idempotency.fencing import FencedRecord
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.testing import FakeClock, a_record
from tests.unit.doubles import Wire, WiredStore


class Attempted:
    """A claimed record on a store behind a wire."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.wire = Wire()

    async def claimed(self) -> FencedRecord:
        stored = await self.store.insert(a_record("k"))
        assert stored is not None
        wired = WiredStore(self.store, self.wire)
        return FencedRecord(wired, self.clock, stored, claimed_at=0.0)

    async def stored(self) -> Stored | None:
        return await self.store.read("contract", "k")


async def test_a_renewal_after_the_conclusion_writes_nothing() -> None:
    """A heartbeat that comes late must not make a completed record unfinished, nor even touch it."""
    attempted = Attempted()
    fenced = await attempted.claimed()
    assert await fenced.write(status=Status.COMPLETED, result='"r"')
    before = await attempted.stored()
    assert await fenced.renew() is True
    assert await attempted.stored() == before
    assert attempted.wire.trips == ["replace"]


async def test_a_renewal_that_waits_for_the_conclusion_writes_nothing_after_it() -> None:
    attempted = Attempted()
    fenced = await attempted.claimed()

    async def slow() -> None:
        await attempted.clock.sleep(1)

    attempted.wire.before["replace"] = slow
    both = asyncio.gather(fenced.write(status=Status.COMPLETED), fenced.renew())
    assert all(await attempted.clock.run(both))
    stored = await attempted.stored()
    assert stored is not None
    assert stored.record.status is Status.COMPLETED
    assert attempted.wire.trips == ["replace"]


async def test_a_conclusion_whose_answer_was_lost_is_recognised_and_not_written_again() -> None:
    attempted = Attempted()
    fenced = await attempted.claimed()
    attempted.wire.lose["replace"] = ["answer"]
    assert await attempted.clock.run(fenced.write(status=Status.COMPLETED)) is True
    assert attempted.wire.trips == ["replace", "replace", "read"]


async def test_the_lease_counts_from_before_the_renewal_was_sent() -> None:
    attempted = Attempted()
    fenced = await attempted.claimed()

    async def slow() -> None:
        await attempted.clock.sleep(4)

    await attempted.clock.advance(10)
    attempted.wire.before["replace"] = slow
    assert await attempted.clock.run(fenced.renew())
    assert fenced.lease_left() == 26.0


async def test_a_store_that_refuses_and_then_reads_the_record_unchanged_is_given_up_on() -> None:
    """A replica that lags for ever must not keep the attempt in a loop."""
    attempted = Attempted()
    fenced = await attempted.claimed()

    class Stale(WiredStore):
        async def replace(self, record: object, etag: str) -> None:
            return None

    fenced._store = Stale(attempted.store, attempted.wire)
    with pytest.raises(StoreUnavailable, match="reads the record as unchanged"):
        await attempted.clock.run(fenced.write(status=Status.COMPLETED))
