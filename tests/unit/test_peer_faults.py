"""The kinds of fault found in other libraries, each made impossible here: one test per kind.

The number is that of the list of kinds the project keeps. Kinds that do not show in the core:

- 17 (one subscriber suppresses the others) also concerns the app's subscriptions: tests/integration
- 19 (no cleanup): native expiry is tested in tests/contract/test_what_is_written.py, as is the
  spreading over partitions; the purge of Table Storage has tests of its own
- 20 (retention shorter than an operator's retry): the core's part is below; the check of the
  broker's window belongs to the retention check's own tests
- 23 (an answer replayed to another caller) is a matter of the key an adapter builds: tests/triggers;
  the core's part, that parts cannot be confused, is below
- 25 (metadata of a batch shifted to the wrong body) is a matter of the adapters, which take one
  message per call: tests/triggers
"""

import asyncio
import dataclasses
import os
import time
from decimal import Decimal

import pytest

from shared.idempotency import (
    BusinessConflict,
    ConfigurationError,
    Consumer,
    Delivery,
    MissingKey,
    Outcome,
    Policy,
    ResultCodec,
    Status,
    StoreUnavailable,
    current_attempt,
    current_unit,
    joined,
)
from shared.idempotency.records import Step
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.testing import a_record
from tests.unit.doubles import CODEC, KEY, OTHER, SAME, Bench, HandlerFailed, a_delivery
from tests.unit.test_round_trips import InboxBench


async def _overtaken(bench: Bench) -> None:
    """A first attempt stalls beyond its lease; a second one takes over and completes."""
    stored = await bench.stored()
    assert stored is not None
    await bench.store.replace(stored.record.replaced(lease=-5.0), stored.etag)
    second = await bench.other.handle(a_delivery(), _theirs, CODEC)
    assert second.outcome is Outcome.PROCESSED


async def _theirs() -> str:
    return "of the second run"


async def test_01_a_late_finisher_does_not_overwrite_the_second_runs_result() -> None:
    bench = Bench()
    bench.effect.seconds = 5.0
    first = bench.begin()
    await bench.clock.advance(1)
    await _overtaken(bench)
    told = await bench.clock.run(first)
    assert (told.outcome, told.result) == (Outcome.DUPLICATE, "of the second run")
    assert (await bench.record()).result == '"of the second run"'


async def test_01_a_late_failure_does_not_delete_a_completed_record() -> None:
    bench = Bench()
    bench.effect.seconds, bench.effect.error = 5.0, HandlerFailed()
    first = bench.begin()
    await bench.clock.advance(1)
    await _overtaken(bench)
    with pytest.raises(HandlerFailed):
        await bench.clock.run(first)
    assert (await bench.record()).status is Status.COMPLETED
    assert (await bench.handle(_theirs)).outcome is Outcome.DUPLICATE


async def test_02_nested_consumers_on_one_store_complete_under_their_own_keys() -> None:
    bench = Bench()
    inner = bench.a_consumer(bench.store, "inner")

    async def work() -> str:
        before = current_attempt().key
        await inner.handle(a_delivery(key="inner"), bench.effect, CODEC)
        assert current_attempt().key == before
        return "outer"

    await bench.consumer.handle(a_delivery(key="outer"), work, CODEC)
    assert (await bench.record("outer")).result == '"outer"'
    nested = await bench.store.read("inner", "inner")
    assert nested is not None
    assert nested.record.result == '"result 1"'


@pytest.mark.parametrize("falsy", [None, 0, False, "", [], {}])
async def test_03_a_falsy_result_is_replayed_as_it_is(falsy: object) -> None:
    consumer = Consumer("c", MemoryStore(), policy=Policy(memory=0.0))
    codec: ResultCodec[object] = ResultCodec()

    async def work() -> object:
        return falsy

    for _ in range(2):
        handled = await consumer.handle(Delivery(key="k"), work, codec)
        assert handled.result == falsy
        assert type(handled.result) is type(falsy)
        assert handled.result_kept


@dataclasses.dataclass
class Receipt:
    total: Decimal
    lines: tuple[str, ...]


async def test_04_first_and_replayed_caller_get_the_same_type() -> None:
    consumer = Consumer("c", MemoryStore(), policy=Policy(memory=0.0))

    async def work() -> Receipt:
        return Receipt(Decimal("1.10"), ("a",))

    codec = ResultCodec[Receipt](Receipt)
    results = [(await consumer.handle(Delivery(key="k"), work, codec)).result for _ in range(2)]
    assert results == [Receipt(Decimal("1.10"), ("a",))] * 2


async def test_05_the_configuration_belongs_to_the_consumer_not_to_the_shared_store() -> None:
    store = MemoryStore()
    consumers = [
        Consumer(name, store, policy=Policy(retention=kept))
        for name, kept in (("a", 5.0), ("b", 9.0))
    ]
    for consumer in consumers:
        await consumer.handle(Delivery(key="k"), _theirs, CODEC)
    kept = []
    for name in ("a", "b"):
        stored = await store.read(name, "k")
        assert stored is not None
        kept.append(round((stored.record.expires_at or 0) - (stored.record.finished_at or 0)))
    assert kept == [5, 9]


async def test_06_cancellation_does_not_leave_the_key_locked() -> None:
    bench = Bench()
    bench.effect.seconds = 50.0
    running = bench.begin()
    await bench.clock.advance(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(running)
    bench.effect.seconds = 0.0
    assert (await bench.handle(wait=0)).outcome is Outcome.PROCESSED


async def test_07_a_lease_is_always_written_and_a_crash_locks_no_longer_than_it() -> None:
    bench = Bench()
    bench.effect.seconds = 5.0
    running = bench.begin()
    await bench.clock.advance(1)
    record = await bench.record()
    assert record.lease == bench.policy.lease
    await bench.clock.run(running)
    with pytest.raises(ConfigurationError):
        Policy(lease=0.0)


async def test_08_a_completion_that_fails_after_the_effect_leaves_an_unfinished_record() -> None:
    bench = Bench()

    async def goes_down() -> None:
        bench.wire.down = True

    bench.wire.before["replace"] = goes_down
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    bench.wire.down = False
    record = await bench.record()
    assert (record.status, record.attempt) == (Status.IN_PROGRESS, 1)
    next_one = await bench.handle()
    assert next_one.attempt == 2  # it met the record: a takeover, no fresh start


async def test_09_what_was_recorded_at_a_third_party_is_there_for_the_next_attempt() -> None:
    """The core's part: recorded steps outlive the attempt. What is done with them is a policy."""
    bench = Bench()
    step = Step(name="charge", begun_at=0.0, deadline=5.0, done=True, result='"payment-1"')
    crashed = a_record(
        KEY, consumer="charge_payment", owner="dead", fingerprint=SAME, lease=-5.0, steps=(step,)
    )
    await bench.store.insert(crashed)
    seen: list[tuple[Step, ...]] = []

    async def work() -> str:
        seen.append((await bench.record()).steps)
        raise HandlerFailed

    with pytest.raises(HandlerFailed):
        await bench.handle(work)
    assert seen == [(step,)]
    assert (await bench.record()).status is Status.RELEASED
    assert (await bench.record()).steps == (step,)


async def test_10_a_missing_key_part_is_refused_and_nothing_runs_unprotected() -> None:
    with pytest.raises(MissingKey):
        joined("order", None)
    bench = Bench()
    with pytest.raises(MissingKey):
        await bench.handle(key="")
    assert bench.effect.begun == 0


@pytest.mark.parametrize("change", [1_774_746_000.0, 1_792_890_000.0], ids=["spring", "autumn"])
async def test_11_a_clock_change_makes_no_retention_longer_or_shorter(
    change: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour before the clocks in Berlin change; times are seconds since the epoch."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        bench = Bench(retention=7200.0)
        bench.clock._start = change - 3600.0
        await bench.handle()
        record = await bench.record()
        assert (record.expires_at or 0) - (record.finished_at or 0) == 7200.0
        assert record.finished_at == change - 3600.0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert os.environ.get("TZ") != "Europe/Berlin"


async def test_12_an_async_handlers_body_runs_before_the_record_is_completed() -> None:
    bench = Bench()
    bench.effect.seconds = 3.0
    handled = await bench.handle()
    assert bench.effect.done == 1
    assert handled.result == "result 1"


async def test_13_renaming_the_function_does_not_open_the_window() -> None:
    bench = Bench()

    async def renamed() -> str:
        raise AssertionError("ran again under another name")

    await bench.handle(_theirs)
    assert (await bench.handle(renamed)).outcome is Outcome.DUPLICATE


async def test_14_a_result_over_the_limit_is_not_kept_and_the_work_not_repeated() -> None:
    bench = Bench(max_result_bytes=4)
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    again = await bench.handle()
    assert (again.outcome, again.result_kept) == (Outcome.DUPLICATE, False)


async def test_15_an_orphan_is_recovered_by_a_conditional_write_not_by_check_then_set() -> None:
    bench = Bench()
    await bench.store.insert(
        a_record(KEY, consumer="charge_payment", owner="dead", fingerprint=SAME, lease=-5.0)
    )

    async def another_is_quicker() -> None:
        await bench.other.handle(a_delivery(), _theirs, CODEC)

    bench.wire.before["replace"] = another_is_quicker
    handled = await bench.handle()
    assert (handled.outcome, handled.result) == (Outcome.DUPLICATE, "of the second run")
    assert bench.effect.begun == 0


@pytest.mark.parametrize("path", ["first", "redelivered", "memory"])
async def test_16_content_is_compared_on_every_path(path: str) -> None:
    bench = Bench(memory=10.0 if path == "memory" else 0.0)
    await bench.handle()
    handled = await bench.handle(fingerprint=OTHER, redelivered=path == "redelivered")
    assert handled.outcome is Outcome.MISMATCH


async def test_17_one_consumer_does_not_suppress_another() -> None:
    bench = Bench()
    outcomes = [
        (await bench.handle(consumer=bench.a_consumer(bench.store, name))).outcome
        for name in ("email", "loyalty", "payments")
    ]
    assert outcomes == [Outcome.PROCESSED] * 3


async def test_18_of_concurrent_duplicates_one_runs_the_handler() -> None:
    bench = Bench(waiting_slots=20)
    bench.effect.seconds = 2.0
    deliveries = [
        asyncio.ensure_future(consumer.handle(a_delivery(), bench.effect, CODEC))
        for consumer in (bench.consumer, bench.other) * 5
    ]
    handled = await bench.clock.run(asyncio.gather(*deliveries))
    assert bench.effect.begun == 1
    assert sorted(h.outcome for h in handled) == [Outcome.DUPLICATE] * 9 + [Outcome.PROCESSED]


async def test_18_of_concurrent_inbox_deliveries_one_commits() -> None:
    bench = InboxBench()
    handled = await asyncio.gather(
        *(c.handle(a_delivery(), bench.work, CODEC) for c in (bench.consumer, bench.other) * 5)
    )
    assert sorted(h.outcome for h in handled) == [Outcome.DUPLICATE] * 9 + [Outcome.PROCESSED]
    assert len(bench.store.documents()) == 2


async def test_20_a_message_older_than_its_record_is_kept_does_not_run_again() -> None:
    with pytest.raises(ConfigurationError, match="would run twice"):
        Policy(max_age=3600.0, retention=60.0)
    bench = Bench(max_age=60.0, retention=60.0)
    handled = await bench.handle(sent_at=bench.clock.now() - 61)
    assert handled.outcome is Outcome.TOO_OLD
    assert bench.effect.begun == 0


async def test_21_a_failed_handler_does_not_leave_its_key_marked_as_done() -> None:
    bench = Bench()
    bench.effect.error = HandlerFailed()
    for _ in range(3):
        with pytest.raises(HandlerFailed):
            await bench.handle(redelivered=True, wait=0)
    bench.effect.error = None
    retried = await bench.handle(redelivered=True, wait=0)
    assert retried.outcome is Outcome.PROCESSED, "at once, not only when a lease has ended"


async def test_22_a_conflict_on_a_business_document_is_not_taken_for_a_duplicate() -> None:
    bench = InboxBench()

    async def work() -> str:
        current_unit().mark({"status": "placed"})
        current_unit().patch("stock", {"left": 1})
        return "never"

    with pytest.raises(BusinessConflict):
        await bench.consumer.handle(a_delivery(), work, CODEC)
    assert bench.store.documents() == {}
    assert (
        await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    ).outcome is Outcome.PROCESSED


def test_23_parts_of_a_key_cannot_be_confused() -> None:
    """Caller + method + route + key: another caller's key is another key, whatever it contains."""
    assert joined("alice", "POST", "/a", "k") != joined("alicePOST", "/a", "k")
    assert joined("alice", "POST", "/a", "bk") != joined("alice", "POST", "/ab", "k")


async def test_24_a_stale_owner_does_not_delete_the_newer_lock() -> None:
    bench = Bench()
    bench.effect.seconds, bench.effect.error = 5.0, HandlerFailed()
    first = bench.begin()
    await bench.clock.advance(1)
    stored = await bench.stored()
    assert stored is not None
    newer = stored.record.replaced(owner="newer", attempt=2)
    await bench.store.replace(newer, stored.etag)
    with pytest.raises(HandlerFailed):
        await bench.clock.run(first)
    assert (await bench.record()).owner == "newer"
    assert bench.fenced() == ["release"]


@pytest.mark.parametrize("skew", [-600.0, 600.0])
async def test_26_a_workers_wrong_clock_ends_no_lease_early_nor_late(skew: float) -> None:
    """Over real services: tests/contract/test_worker_clock.py."""
    bench = Bench()
    bench.effect.seconds = 5.0
    running = bench.begin()
    await bench.clock.advance(1)
    bench.clock._start += skew
    assert (await bench.handle(consumer=bench.other, wait=0)).outcome is Outcome.IN_FLIGHT
    assert (await bench.clock.run(running)).outcome is Outcome.PROCESSED
    assert bench.effect.begun == 1
    assert (await bench.record()).attempt == 1, "nobody took over"
