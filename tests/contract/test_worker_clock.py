"""A worker whose clock is ten minutes wrong changes nothing: leases are judged by the store's."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from shared.idempotency import Consumer, Delivery, Outcome, Policy, ResultCodec, Store
from shared.idempotency.clock import SystemClock
from shared.idempotency.stores import cosmos_access
from shared.idempotency.testing import a_record
from tests.contract.services import azurite_store, cosmos_server_store

pytestmark = pytest.mark.integration

CODEC: ResultCodec[str] = ResultCodec(str)
POLICY = Policy(lease=1.0, heartbeat=0.3, wait=6.0, deadline=20.0, memory=0.0)


class WrongClock(SystemClock):
    def __init__(self, skew: float) -> None:
        self.skew = skew

    def now(self) -> float:
        return super().now() + self.skew


@pytest.fixture(params=[azurite_store, cosmos_server_store], ids=["table", "cosmos"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with request.param(request) as store:
        yield store


async def test_given_wrong_clocks_then_leases_end_neither_early_nor_late(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = SimpleNamespace(time=lambda: time.time() + 600.0)
    monkeypatch.setattr(cosmos_access, "time", wrong)
    alive = uuid.uuid4().hex
    let_go = asyncio.Event()

    async def slow() -> str:
        await let_go.wait()
        return "slow"

    honest = Consumer("skewed", store, policy=POLICY)
    running = asyncio.create_task(honest.handle(Delivery(key=alive), slow, CODEC))
    workers = [
        Consumer("skewed", store, policy=POLICY, clock=WrongClock(skew)) for skew in (-600, 600)
    ]
    await asyncio.gather(*(_takes_over_in_time(worker, store) for worker in workers))
    for worker in workers:
        in_flight = await worker.handle(Delivery(key=alive), _quick, CODEC, wait=0)
        assert in_flight.outcome is Outcome.IN_FLIGHT  # three leases old, and kept alive
    let_go.set()
    assert (await running).result == "slow"


async def _quick() -> str:
    return "quick"


async def _takes_over_in_time(worker: Consumer, store: Store) -> None:
    dead = uuid.uuid4().hex
    await store.insert(a_record(dead, consumer="skewed", owner="dead", lease=1.0))
    began = time.monotonic()
    early = await worker.handle(Delivery(key=dead), _quick, CODEC, wait=0)
    taken_over = await worker.handle(Delivery(key=dead), _quick, CODEC)
    assert early.outcome is Outcome.IN_FLIGHT
    assert (taken_over.outcome, taken_over.attempt) == (Outcome.PROCESSED, 2)
    assert 1.0 < time.monotonic() - began < 6.0
