"""An attempt died or ended in doubt: what the next one does about each step, policy by policy."""

import contextlib

import pytest

from shared.idempotency import (
    Answer,
    Attempt,
    Effects,
    Outcome,
    PermanentFailure,
    Reconcile,
    Rerun,
    Status,
    TransientFailure,
    UncertainEffect,
    current_attempt,
)
from shared.idempotency.events import TakenOver
from tests.unit.doubles import CODEC, OTHER, HandlerFailed, WiredStore, a_delivery
from tests.unit.steps import DAY, Life, StepBench

IN_DOUBT = ["charge and die", "die"]
UNCERTAIN = ["charge and raise", "raise", "charge and hang", "hang", "land later"]
ASKING = ["rerun", "reconcile"]


@pytest.mark.parametrize("policy", ASKING)
@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_given_an_attempt_died_in_its_call_when_delivered_again_then_it_is_charged_once(
    fault: str, policy: str
) -> None:
    bench = StepBench(policy)
    await bench.dies(fault)
    handled = await bench.deliver(bench.other)
    assert (handled.outcome, handled.result, handled.attempt) == (Outcome.PROCESSED, "paid", 2)
    assert len(bench.provider.charges) == 1
    assert bench.got == ["receipt 1"]


@pytest.mark.parametrize("policy", ASKING)
@pytest.mark.parametrize("fault", UNCERTAIN)
async def test_given_a_call_of_unknown_effect_when_delivered_again_then_it_is_charged_once(
    fault: str, policy: str
) -> None:
    bench = StepBench(policy)
    bench.provider.next = [fault]
    with pytest.raises(UncertainEffect):
        await bench.deliver()
    record = await bench.record()
    assert record.status is Status.UNCERTAIN
    assert [(step.name, step.done) for step in record.steps] == [("charge", False)]
    handled = await bench.deliver()
    assert (handled.outcome, handled.result) == (Outcome.PROCESSED, "paid")
    assert len(bench.provider.charges) == 1


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_quarantine_leaves_a_step_in_doubt_to_a_person(fault: str) -> None:
    bench = StepBench("quarantine")
    await bench.dies(fault)
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.QUARANTINED
    assert "charge" in handled.description
    record = await bench.record()
    assert (record.status, record.failure_reason) == (Status.QUARANTINED, "UnknownEffect")
    assert len(bench.provider.calls) == 1
    assert (await bench.deliver(bench.other)).outcome is Outcome.QUARANTINED
    assert len(bench.provider.calls) == 1


async def test_rerun_alone_would_charge_twice_once_the_provider_has_forgotten_the_key() -> None:
    """What the bound is for: an unbounded rerun trusts a key that nobody knows any more."""
    bench = StepBench("rerun")
    await bench.dies()
    bench.provider.forget_keys()
    await bench.deliver(bench.other)
    assert len(bench.provider.charges) == 2


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_past_the_providers_key_retention_reconcile_saves_what_rerun_would_double(
    fault: str,
) -> None:
    bench = StepBench("rerun then reconcile")
    await bench.dies(fault)
    bench.provider.forget_keys()
    await bench.clock.advance(60)
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 1
    assert len(bench.provider.asked) == 1


async def test_past_the_providers_key_retention_rerun_quarantines_where_nothing_else_is_said() -> (
    None
):
    bench = StepBench("rerun then quarantine")
    await bench.dies()
    await bench.clock.advance(60)
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.QUARANTINED
    assert "forgotten" in handled.description
    assert len(bench.provider.calls) == 1


@pytest.mark.parametrize(
    ("delivered_after", "outcome"), [(37.5, Outcome.PROCESSED), (38.5, Outcome.QUARANTINED)]
)
async def test_the_key_must_be_known_until_the_call_that_relies_on_it_has_landed(
    delivered_after: float, outcome: Outcome
) -> None:
    """It is known for 72 s: settle takes 12 of them, the call 10, and it may land 12 s after that."""
    bench = StepBench()
    bench.effects = Effects(policy=Rerun(provider_key_retention=72), settle=12)
    await bench.dies()
    await bench.clock.advance(delivered_after)
    assert (await bench.deliver(bench.a_worker(Life()))).outcome is outcome


async def test_given_a_lease_is_renewed_before_a_rerun_then_its_key_must_be_known_after_that() -> (
    None
):
    """The takeover is settled at 61 s; the renewal takes 5 s, the call 20, and it may land 28 s after."""
    bench = StepBench(heartbeat=15.0)
    bench.effects = Effects(policy=Rerun(provider_key_retention=111.5), settle=28)
    writes = 0

    async def work() -> str:
        attempt = current_attempt()
        key = attempt.downstream_key("charge")
        return await attempt.step("charge", lambda: bench.provider.call(key), deadline=20)

    async def third_is_slow() -> None:
        nonlocal writes
        writes += 1
        bench.wire.before["replace"] = third_is_slow
        if writes == 3:  # after the takeover and a heartbeat
            await bench.clock.sleep(5)

    await bench.dies()
    bench.wire.before["replace"] = third_is_slow
    worker = bench.a_consumer(WiredStore(bench.store, bench.wire))
    handled = await bench.clock.run(worker.handle(a_delivery(), work, CODEC))
    assert writes > 3
    assert handled.outcome is Outcome.QUARANTINED
    assert len(bench.provider.calls) == 1


async def test_given_the_provider_cannot_tell_then_the_step_is_quarantined_with_its_words() -> None:
    bench = StepBench("reconcile")
    bench.provider.cannot_tell = True
    await bench.dies()
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.QUARANTINED
    assert "its books are closed" in handled.description


async def test_given_the_provider_cannot_be_asked_now_then_it_is_asked_at_the_next_delivery() -> (
    None
):
    bench = StepBench("reconcile")
    bench.provider.is_down = True
    await bench.dies()
    with pytest.raises(TransientFailure):
        await bench.deliver(bench.other)
    assert (await bench.record()).status is Status.UNCERTAIN
    bench.provider.is_down = False
    assert (await bench.deliver(bench.other)).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 1


async def test_the_takeover_is_written_and_settled_before_the_provider_is_asked() -> None:
    bench = StepBench("reconcile")
    await bench.dies("die")
    died_at = bench.clock.monotonic()
    seen: list[tuple[float, int]] = []

    async def watched(key: str, step: str, attempt: Attempt) -> Answer:
        seen.append((bench.clock.monotonic() - died_at, (await bench.record()).attempt))
        return await bench.provider.reconcile(key, step, attempt)

    bench.effects = Effects(policy=Reconcile(watched), settle=12.0)
    await bench.deliver(bench.a_worker(Life()))
    assert [attempt for _, attempt in seen] == [2]
    assert seen[0][0] >= 30 + 12  # the lease, then what a call of old may still need


async def test_a_late_call_that_lands_within_settle_is_seen_and_not_repeated() -> None:
    bench = StepBench("reconcile")
    bench.provider.next, bench.provider.late = ["land later"], 11.0
    with pytest.raises(UncertainEffect):
        await bench.deliver()
    bench.provider.forget_keys()
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 1
    assert len(bench.provider.calls) == 1


async def test_an_uncertain_record_that_is_not_settled_is_in_flight_whatever_the_content() -> None:
    bench = StepBench("rerun", settle=60.0)
    bench.provider.next = ["raise"]
    with pytest.raises(UncertainEffect):
        await bench.deliver()
    handled = await bench.clock.run(
        bench.other.handle(a_delivery(fingerprint=OTHER), bench.effect, CODEC, wait=0)
    )
    assert handled.outcome is Outcome.IN_FLIGHT
    assert handled.retry_after == pytest.approx(62)
    await bench.clock.advance(62)
    assert (await bench.deliver(bench.other, fingerprint=OTHER)).outcome is Outcome.MISMATCH


async def test_after_a_step_in_doubt_the_handler_goes_on_with_the_rest() -> None:
    bench = StepBench("reconcile")
    bench.names = ["reserve", "charge", "notify"]
    bench.provider.next = ["charge"]
    await bench.dies("charge and die")
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.PROCESSED
    assert bench.got == ["receipt 1", "receipt 1", "receipt 2", "receipt 3"]
    assert len(bench.provider.charges) == 3
    assert [step for _, step, _ in bench.provider.asked] == ["charge", "notify"]


# -- doubt that must not get lost


async def test_given_a_takeover_raises_before_its_step_then_the_doubt_is_not_forgotten() -> None:
    """Deleted, the record would let the third attempt call as if nothing had been."""
    bench = StepBench("reconcile")
    await bench.dies("charge and die")
    bench.provider.forget_keys()
    bench.names, names = [], bench.names
    bench.after = HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.deliver(bench.other)
    assert (await bench.record()).status is Status.UNCERTAIN
    bench.names, bench.after = names, None
    handled = await bench.deliver(bench.other)
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 3)
    assert len(bench.provider.charges) == 1


async def test_given_a_takeover_raises_after_a_recorded_step_then_the_next_is_still_in_doubt() -> (
    None
):
    bench = StepBench("reconcile")
    bench.names = ["reserve", "charge"]
    bench.provider.next = ["charge"]
    await bench.dies("charge and die")
    bench.provider.forget_keys()
    bench.names, bench.after = ["reserve"], TransientFailure("not now")
    with pytest.raises(TransientFailure):
        await bench.deliver(bench.other)
    bench.names, bench.after = ["reserve", "charge"], None
    assert (await bench.deliver(bench.other)).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 2


@pytest.mark.parametrize("after", [None, PermanentFailure("OrderCancelled")])
async def test_given_a_takeover_ends_without_coming_to_its_step_then_a_person_must_look(
    after: Exception | None,
) -> None:
    bench = StepBench("rerun")
    await bench.dies("charge and die")
    bench.names, bench.after = [], after
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.QUARANTINED
    assert (await bench.record()).failure_reason == "UnknownEffect"


async def test_given_a_rerun_that_is_refused_for_now_then_the_earlier_call_is_still_in_doubt() -> (
    None
):
    bench = StepBench("rerun")
    await bench.dies("charge and die")
    bench.provider.next, bench.provider.error = ["raise"], TransientFailure("throttled")
    with pytest.raises(TransientFailure, match="throttled"):
        await bench.deliver(bench.other)
    record = await bench.record()
    assert (record.status, record.settle) == (Status.UNCERTAIN, 0.0)
    assert (await bench.deliver(bench.other)).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 1


async def test_given_a_rerun_that_is_refused_for_good_then_the_refusal_is_recorded() -> None:
    bench = StepBench("rerun")
    await bench.dies("die")
    bench.provider.next, bench.provider.error = ["raise"], PermanentFailure("CardDeclined")
    handled = await bench.deliver(bench.other)
    assert (handled.outcome, handled.reason) == (Outcome.FAILED, "CardDeclined")
    assert (await bench.record()).status is Status.FAILED


async def test_a_step_left_in_doubt_that_the_handler_no_longer_has_is_for_a_person() -> None:
    bench = StepBench("rerun")
    bench.provider.next = ["charge and raise"]
    with pytest.raises(UncertainEffect):
        await bench.deliver()
    bench.names = ["charge_card"]
    handled = await bench.deliver()
    assert handled.outcome is Outcome.QUARANTINED
    assert "charge" in handled.description


async def test_each_takeover_is_counted_with_the_policy() -> None:
    bench = StepBench("reconcile")
    await bench.dies()
    await bench.deliver(bench.other)
    takeovers = [event for event in bench.events if isinstance(event, TakenOver)]
    assert [(event.attempt, event.policy) for event in takeovers] == [(2, "reconcile")]


async def test_released_steps_are_not_in_doubt_however_late_the_next_delivery_comes() -> None:
    bench = StepBench("quarantine")
    bench.after = TransientFailure("not now")
    bench.names = ["reserve"]
    with pytest.raises(TransientFailure):
        await bench.deliver()
    assert (await bench.record()).status is Status.RELEASED
    await bench.clock.advance(3 * DAY)
    bench.after, bench.names = None, ["reserve", "charge"]
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 2


@pytest.mark.parametrize("end", [None, PermanentFailure("GaveUp")])
async def test_a_rerun_refused_for_now_outranks_a_handler_that_makes_nothing_of_it(
    end: Exception | None,
) -> None:
    bench = StepBench("rerun")
    await bench.dies("charge and die")
    bench.provider.next, bench.provider.error = ["raise"], TransientFailure("throttled")

    async def work() -> str:
        with contextlib.suppress(TransientFailure):
            await bench.work(Life())
        if end is not None:
            raise end
        return "swallowed"

    with pytest.raises(UncertainEffect):
        await bench.clock.run(bench.other.handle(a_delivery(), work, CODEC))
    assert (await bench.record()).status is Status.UNCERTAIN


async def test_a_refusal_for_good_after_nothing_but_recorded_steps_leaves_a_doubt_to_a_person() -> (
    None
):
    bench = StepBench("rerun")
    bench.names = ["reserve", "charge"]
    bench.provider.next = ["charge"]
    await bench.dies("charge and die")
    bench.names, bench.after = ["reserve"], PermanentFailure("OrderCancelled")
    handled = await bench.deliver(bench.other)
    assert handled.outcome is Outcome.QUARANTINED
    assert "OrderCancelled" in handled.description


async def test_a_step_once_in_doubt_is_recorded_like_any_other_before_the_next_begins() -> None:
    bench = StepBench("rerun")
    bench.provider.next = ["charge and raise"]
    with pytest.raises(UncertainEffect):
        await bench.deliver()
    bench.names, bench.last = ["charge", "notify"], "charge"
    bench.provider.next = ["charge"]
    await bench.dies("die")
    assert [(step.name, step.done) for step in (await bench.record()).steps] == [("charge", True)]
