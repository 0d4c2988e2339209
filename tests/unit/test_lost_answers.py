"""A request or an answer is lost, at every operation in turn: the outcome is right, the effect once."""

import itertools

import pytest

from shared.idempotency import Outcome, PermanentFailure, Status, StoreUnavailable
from tests.unit.doubles import CODEC, Bench, HandlerFailed, Loss, a_delivery
from tests.unit.test_round_trips import InboxBench

LOSSES: list[Loss] = ["request", "answer"]
ONCE_AND_MORE = [1, 2, 3]


@pytest.mark.parametrize("times", ONCE_AND_MORE)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operation", ["insert", "replace"])
async def test_fresh_work_is_processed_once(operation: str, loss: Loss, times: int) -> None:
    bench = Bench()
    bench.wire.lose[operation] = [loss] * times
    handled = await bench.handle()
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 1)
    assert bench.effect.done == 1
    assert (await bench.record()).status is Status.COMPLETED
    assert bench.fenced() == []
    assert (await bench.handle()).outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("losses", list(itertools.product(LOSSES, LOSSES, LOSSES)))
async def test_any_mixture_of_losses_at_the_claim_is_survived(losses: tuple[Loss, ...]) -> None:
    bench = Bench()
    bench.wire.lose["insert"] = list(losses)
    bench.wire.lose["read"] = ["answer"]
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.effect.done == 1


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_completion_of_a_failure_is_recorded_all_the_same(loss: Loss) -> None:
    bench = Bench()
    bench.effect.error = PermanentFailure("No")
    bench.wire.lose["replace"] = [loss]
    assert (await bench.handle()).outcome is Outcome.FAILED
    assert (await bench.record()).status is Status.FAILED
    assert bench.fenced() == []


@pytest.mark.parametrize("times", ONCE_AND_MORE)
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_release_whose_answer_is_lost_still_frees_the_key(loss: Loss, times: int) -> None:
    bench = Bench()
    bench.effect.error = HandlerFailed()
    bench.wire.lose["delete"] = [loss] * times
    with pytest.raises(HandlerFailed):
        await bench.handle()
    assert await bench.stored() is None
    assert bench.fenced() == []


async def test_a_release_that_is_issued_again_does_not_delete_the_next_attempts_record() -> None:
    bench = Bench()
    bench.effect.error = HandlerFailed()
    bench.wire.lose["delete"] = ["answer"]

    async def next_attempt_begins() -> None:
        bench.wire.before["delete"] = other_completes

    async def other_completes() -> None:
        bench.effect.error = None
        await bench.other.handle(a_delivery(), bench.effect, CODEC)

    bench.wire.before["delete"] = next_attempt_begins
    with pytest.raises(HandlerFailed):
        await bench.handle()
    assert (await bench.record()).status is Status.COMPLETED


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_renewal_does_not_end_the_attempt(loss: Loss) -> None:
    bench = Bench()
    bench.effect.seconds = 25.0
    bench.wire.lose["replace"] = [loss]
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.effect.begun == 1
    assert bench.fenced() == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_takeover_is_made_once(loss: Loss) -> None:
    bench = Bench()
    bench.effect.seconds = 1.0
    dead = bench.begin()
    await bench.clock.advance(0.5)
    stored = await bench.stored()
    assert stored is not None
    await bench.store.replace(stored.record.replaced(owner="dead"), stored.etag)
    dead.cancel()
    await bench.clock.advance(40)
    bench.wire.lose["replace"] = [loss]
    handled = await bench.handle()
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 2)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_read_of_a_redelivery_is_read_again(loss: Loss) -> None:
    bench = Bench()
    await bench.handle(consumer=bench.other)
    bench.wire.lose["read"] = [loss]
    assert (await bench.handle(redelivered=True)).outcome is Outcome.DUPLICATE


async def test_a_claim_that_lands_when_nobody_waits_for_it_any_more_ends_with_its_lease() -> None:
    bench = Bench()
    bench.wire.lose["insert"] = ["request", "request", "request", "answer"]
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert bench.effect.begun == 0
    handled = await bench.handle(redelivered=True)
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 2)
    assert bench.effect.done == 1


# -- the inbox


@pytest.mark.parametrize("times", ONCE_AND_MORE)
@pytest.mark.parametrize("loss", LOSSES)
async def test_an_inbox_commit_whose_answer_is_lost_was_processed_not_a_duplicate(
    loss: Loss, times: int
) -> None:
    bench = InboxBench()
    bench.wire.lose["commit"] = [loss] * times
    handled = await bench.clock.run(bench.consumer.handle(a_delivery(), bench.work, CODEC))
    assert (handled.outcome, handled.result) == (Outcome.PROCESSED, "placed")
    assert len(bench.store.documents()) == 2


async def test_an_inbox_commit_that_another_wins_meanwhile_is_a_duplicate() -> None:
    bench = InboxBench()

    async def other_wins() -> None:
        await bench.other.handle(a_delivery(), bench.work, CODEC)

    bench.wire.before["commit"] = other_wins
    handled = await bench.clock.run(bench.consumer.handle(a_delivery(), bench.work, CODEC))
    assert handled.outcome is Outcome.DUPLICATE


async def test_an_inbox_whose_store_is_down_writes_nothing_and_says_so() -> None:
    bench = InboxBench()
    bench.wire.down = True
    with pytest.raises(StoreUnavailable):
        await bench.clock.run(bench.consumer.handle(a_delivery(), bench.work, CODEC))
    assert bench.store.documents() == {}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_read_of_an_inbox_is_read_again(loss: Loss) -> None:
    bench = InboxBench()
    await bench.other.handle(a_delivery(), bench.work, CODEC)
    bench.wire.lose["read"] = [loss]
    delivery = a_delivery(redelivered=True)
    handled = await bench.clock.run(bench.consumer.handle(delivery, bench.work, CODEC))
    assert handled.outcome is Outcome.DUPLICATE
