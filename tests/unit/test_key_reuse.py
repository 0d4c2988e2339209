"""Keys that callers choose for one exchange: after the retention they may be used again, by one."""

import asyncio

import pytest

from shared.idempotency import (
    Consumer,
    Handled,
    Outcome,
    PermanentFailure,
    Status,
    Store,
    StoreUnavailable,
)
from shared.idempotency.decision import CLOCK_ALLOWANCE
from shared.idempotency.testing import a_record
from tests.unit.doubles import CODEC, KEY, OTHER, SAME, Bench, a_delivery

RETENTION = 100.0


class ReuseBench(Bench):
    """Two workers whose consumers let keys be used again."""

    def a_consumer(self, store: Store, name: str = "charge_payment") -> Consumer:
        return Consumer(
            name,
            store,
            reusable_keys=True,
            policy=self.policy,
            observer=self.events.append,
            clock=self.clock,
        )


@pytest.fixture
def bench() -> ReuseBench:
    return ReuseBench(retention=RETENTION)


async def test_given_a_finished_key_when_it_comes_within_the_retention_then_it_is_a_duplicate(
    bench: ReuseBench,
) -> None:
    await bench.handle()
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE - 0.1)

    again = await bench.handle()
    other = await bench.handle(fingerprint=OTHER)

    assert (again.outcome, again.result) == (Outcome.DUPLICATE, "result 1")
    assert other.outcome is Outcome.MISMATCH
    assert bench.effect.done == 1


@pytest.mark.parametrize("fingerprint", [SAME, OTHER])
async def test_given_an_expired_key_when_it_comes_again_then_the_work_is_done_anew_in_one_write(
    bench: ReuseBench, fingerprint: str
) -> None:
    await bench.handle(sequence_number=1, trace_parent="old")
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)
    bench.wire.trips.clear()

    again = await bench.handle(fingerprint=fingerprint, sequence_number=2)

    assert (again.outcome, again.result, again.attempt) == (Outcome.PROCESSED, "result 2", 1)
    # insert refused, read, claimed by a conditional replace, completed
    assert bench.wire.trips == ["insert", "read", "replace", "replace"]
    record = await bench.record()
    assert (record.fingerprint, record.first_sequence_number) == (fingerprint, 2)
    assert record.trace_parent is None, "nothing of the old exchange stays"


async def test_given_a_refusal_that_expired_when_the_key_comes_again_then_it_is_tried_again(
    bench: ReuseBench,
) -> None:
    bench.effect.error = PermanentFailure("OutOfStock")
    assert (await bench.handle()).outcome is Outcome.FAILED
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)
    bench.effect.error = None

    assert (await bench.handle()).outcome is Outcome.PROCESSED


@pytest.mark.parametrize("status", [s for s in Status if not s.is_finished])
async def test_given_an_unfinished_record_when_any_time_has_passed_then_it_is_never_taken_for_expired(
    bench: ReuseBench, status: Status
) -> None:
    record = a_record(
        KEY,
        consumer="charge_payment",
        status=status,
        fingerprint=SAME,
        expires_at=1.0,
        finished_at=0.5,
    )
    await bench.store.insert(record)
    await bench.clock.advance(1e9)

    handled = await bench.handle(fingerprint=OTHER)

    assert handled.outcome in (Outcome.MISMATCH, Outcome.QUARANTINED)
    assert bench.effect.begun == 0


async def test_given_a_newer_release_s_record_when_it_has_expired_then_it_is_not_ours_to_replace(
    bench: ReuseBench,
) -> None:
    await bench.handle()
    stored = await bench.stored()
    assert stored is not None
    await bench.store.replace(stored.record.replaced(schema=99), stored.etag)
    await bench.clock.advance(RETENTION * 2)

    assert (await bench.handle()).outcome is Outcome.DUPLICATE


async def test_given_an_expired_key_when_ten_come_at_once_then_one_does_the_work(
    bench: ReuseBench,
) -> None:
    await bench.handle()
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)
    bench.effect.seconds = 1.0

    async def at_once() -> list[Handled[str]]:
        consumers = [bench.consumer, bench.other] * 5
        return await asyncio.gather(
            *(c.handle(a_delivery(fingerprint=OTHER), bench.effect, CODEC) for c in consumers)
        )

    outcomes = [h.outcome for h in await bench.clock.run(at_once())]

    assert sorted(outcomes) == [Outcome.DUPLICATE] * 9 + [Outcome.PROCESSED]
    assert bench.effect.done == 2


async def test_given_two_saw_it_expired_when_the_first_is_done_before_the_second_claims_then_one_runs(
    bench: ReuseBench,
) -> None:
    """The second's claim is on condition of the record it read, not of the key being expired."""
    await bench.handle()
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)

    async def the_other_is_quicker() -> None:
        await bench.other.handle(a_delivery(), bench.effect, CODEC)

    bench.wire.before["replace"] = the_other_is_quicker

    assert (await bench.handle()).outcome is Outcome.DUPLICATE
    assert bench.effect.done == 2


async def test_given_the_claim_s_answer_is_lost_when_it_is_issued_again_then_our_own_write_is_known(
    bench: ReuseBench,
) -> None:
    await bench.handle()
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)
    bench.wire.lose["replace"] = ["answer"]

    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.effect.done == 2


async def test_given_the_store_is_down_when_an_expired_key_comes_again_then_nothing_runs(
    bench: ReuseBench,
) -> None:
    await bench.handle()
    await bench.clock.advance(RETENTION + CLOCK_ALLOWANCE + 0.1)
    bench.wire.down = True

    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert bench.effect.done == 1


async def test_given_a_consumer_of_a_broker_when_its_record_has_expired_then_it_stays_a_duplicate() -> (
    None
):
    bench = Bench(retention=RETENTION)
    await bench.handle()
    await bench.clock.advance(RETENTION * 1000)

    assert (await bench.handle()).outcome is Outcome.DUPLICATE
    assert (await bench.handle(fingerprint=OTHER)).outcome is Outcome.MISMATCH
