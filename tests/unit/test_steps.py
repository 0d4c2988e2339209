"""Recorded steps: what they give back, what they cost, when they may begin, how they end."""

import asyncio
import contextlib
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from shared.idempotency import (
    Attempt,
    AttemptEnded,
    ConfigurationError,
    DeadlineExceeded,
    Effects,
    MalformedContent,
    Outcome,
    PermanentFailure,
    Quarantine,
    Record,
    Rerun,
    Status,
    Store,
    Stored,
    StoreUnavailable,
    TransientFailure,
    UncertainEffect,
    current_attempt,
)
from shared.idempotency.events import EffectUnknown, ResultNotKept, StepsChanged
from shared.idempotency.running import as_work
from tests.unit.doubles import CODEC, Bench, HandlerFailed, Wire, WiredStore, a_delivery
from tests.unit.steps import DEADLINE, StepBench


class Receipt(msgspec.Struct, frozen=True):
    id: str
    amount: Decimal
    at: datetime


RECEIPT = Receipt("r-1", Decimal("12.50"), datetime(2026, 1, 2, tzinfo=UTC))


def declared(**numbers: Any) -> Bench:
    """A bench whose consumer has declared its effects."""
    return Bench(effects=Effects(policy=Rerun(provider_key_retention=1e6)), **numbers)


async def nothing() -> None:
    """A step's call without a result."""


# -- results


async def test_given_a_finished_step_when_tried_again_then_its_result_comes_back_and_no_call_is_made() -> (
    None
):
    bench = StepBench()
    bench.after = TransientFailure("not now")
    with pytest.raises(TransientFailure):
        await bench.deliver()
    record = await bench.record()
    assert record.status is Status.RELEASED
    assert [(s.name, s.done, s.result) for s in record.steps] == [("charge", True, '"receipt 1"')]
    bench.after = None
    handled = await bench.deliver()
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 2)
    assert bench.got == ["receipt 1", "receipt 1"]
    assert len(bench.provider.calls) == 1
    assert (await bench.record()).steps == ()


@pytest.mark.parametrize("by", ["annotation", "result_type", "thread"])
async def test_typed_results_come_back_equal_for_the_first_and_the_later_attempt(by: str) -> None:
    bench = declared()
    got: list[Receipt] = []

    async def charge() -> Receipt:
        return RECEIPT

    def charge_in_a_thread() -> Receipt:
        return RECEIPT

    async def work() -> str:
        step = current_attempt().step
        if by == "annotation":
            got.append(await step("charge", charge, deadline=5))
        elif by == "thread":
            got.append(await step("charge", charge_in_a_thread, deadline=5))
        else:
            got.append(await step("charge", lambda: charge(), deadline=5, result_type=Receipt))
        if len(got) == 1:
            raise HandlerFailed
        return "paid"

    with pytest.raises(HandlerFailed):
        await bench.handle(work)
    await bench.handle(work)
    assert got == [RECEIPT, RECEIPT]


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}])
async def test_falsy_results_are_results(result: Any) -> None:
    bench = declared()
    got: list[Any] = []

    async def call() -> Any:
        got.append("called")
        return result

    async def work() -> str:
        got.append(await current_attempt().step("charge", call, deadline=5))
        if len(got) == 2:
            raise HandlerFailed
        return "paid"

    with pytest.raises(HandlerFailed):
        await bench.handle(work)
    await bench.handle(work)
    assert got == ["called", result, result]


async def test_a_step_result_that_could_not_be_kept_and_is_needed_again_is_for_a_person() -> None:
    bench = StepBench(max_result_bytes=5)
    bench.after = HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.deliver()
    assert bench.got == ["receipt 1"]  # whoever called has it
    assert any(isinstance(event, ResultNotKept) for event in bench.events)
    handled = await bench.deliver()
    assert handled.outcome is Outcome.QUARANTINED
    assert (await bench.record()).failure_reason == "StepResultNotKept"
    assert len(bench.provider.calls) == 1


async def test_a_step_result_that_is_of_another_type_by_now_is_for_a_person() -> None:
    bench = declared()
    types: list[Any] = [str, int]

    async def work() -> str:
        await current_attempt().step(
            "charge", lambda: _text("r-1"), deadline=5, result_type=types.pop(0)
        )
        raise HandlerFailed

    with pytest.raises(HandlerFailed):
        await bench.handle(work)
    handled = await bench.handle(work)
    assert handled.outcome is Outcome.QUARANTINED
    assert (await bench.record()).failure_reason == "StepResultUnreadable"


# -- what it costs


@pytest.mark.parametrize(
    ("names", "last", "trips"),
    [
        (["charge"], None, ["insert", "replace", "replace"]),
        (["charge"], "charge", ["insert", "replace"]),
        (["reserve", "charge"], "charge", ["insert", "replace", "replace"]),
        (["reserve", "charge", "notify"], None, ["insert", *["replace"] * 4]),
    ],
)
async def test_each_recorded_step_is_one_trip_and_the_last_is_in_the_completion(
    names: list[str], last: str | None, trips: list[str]
) -> None:
    bench = StepBench()
    bench.names, bench.last = names, last
    bench.consumer = bench.a_consumer(WiredStore(bench.store, bench.wire))
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    assert bench.wire.trips == trips


async def test_the_last_step_is_kept_when_the_handler_fails_after_it() -> None:
    bench = StepBench()
    bench.last, bench.after = "charge", HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.deliver()
    bench.after = None
    await bench.deliver()
    assert bench.got == ["receipt 1", "receipt 1"]
    assert len(bench.provider.calls) == 1


async def test_a_last_step_that_was_not_the_last_is_recorded_before_the_next() -> None:
    bench = StepBench("quarantine")
    bench.names, bench.last = ["charge", "notify"], "charge"
    bench.provider.next = ["charge"]
    await bench.dies("charge and die")
    assert [(s.name, s.done) for s in (await bench.record()).steps] == [("charge", True)]


# -- names and changes


async def test_a_name_may_not_repeat_within_an_attempt() -> None:
    bench = StepBench()
    bench.names = ["charge", "charge"]
    with pytest.raises(ConfigurationError, match="twice"):
        await bench.deliver()
    assert len(bench.provider.calls) == 1


async def test_a_consumer_that_did_not_declare_its_effects_has_no_steps() -> None:
    bench = StepBench()
    bench.effects = None
    with pytest.raises(ConfigurationError, match="effects"):
        await bench.deliver(bench.a_consumer(bench.store))
    assert bench.provider.calls == []
    assert await bench.stored() is None


@pytest.mark.parametrize(
    ("names", "unused", "reordered"),
    [
        (["charge", "notify"], ("reserve",), False),
        (["charge", "reserve", "notify"], (), True),
        (["check", "reserve", "charge"], (), False),
    ],
)
async def test_a_handler_whose_steps_changed_between_attempts_is_recognised_and_goes_on(
    names: list[str], unused: tuple[str, ...], reordered: bool
) -> None:
    bench = StepBench()
    bench.names, bench.after = ["reserve", "charge"], HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.deliver()
    bench.names, bench.after = names, None
    bench.got.clear()
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    receipts = {"reserve": "receipt 1", "charge": "receipt 2"}
    assert bench.got == [receipts.get(name, "receipt 3") for name in names]
    changes = [event for event in bench.events if isinstance(event, StepsChanged)]
    assert [(e.unused, e.reordered) for e in changes] == (
        [(unused, reordered)] if unused or reordered else []
    )


# -- steps side by side


async def test_concurrent_steps_are_all_recorded_whatever_their_order_of_writing() -> None:
    bench = declared()
    calls: list[str] = []

    async def call(name: str, seconds: float) -> str:
        calls.append(name)
        await bench.clock.sleep(seconds)
        return name

    async def work() -> str:
        step = current_attempt().step
        got = await asyncio.gather(
            *(
                step(f"s{n}", lambda n=n: call(f"s{n}", 5.0 - n), deadline=9)  # type: ignore[misc]
                for n in range(5)
            )
        )
        if len(calls) == 5 and not failed:
            failed.append(True)
            raise HandlerFailed
        return ",".join(got)

    failed: list[bool] = []
    with pytest.raises(HandlerFailed):
        await bench.handle(work)
    assert [s.name for s in (await bench.record()).steps] == ["s0", "s1", "s2", "s3", "s4"]
    assert (await bench.handle(work)).result == "s0,s1,s2,s3,s4"
    assert len(calls) == 5


async def test_a_step_that_nobody_awaits_any_more_is_given_its_time_and_recorded() -> None:
    """`gather` raises at the first error and leaves the others running."""
    bench = declared()
    calls: list[str] = []

    async def refused() -> None:
        raise TransientFailure("not now")

    async def slow() -> str:
        calls.append("slow")
        await bench.clock.sleep(4)
        return "done"

    async def work() -> str:
        step = current_attempt().step
        await asyncio.gather(step("a", refused, deadline=5), step("b", slow, deadline=5))
        return "never"

    with pytest.raises(TransientFailure):
        await bench.handle(work)
    record = await bench.record()
    assert record.status is Status.RELEASED
    assert [(s.name, s.done) for s in record.steps] == [("b", True)]


async def test_a_step_begun_after_its_attempt_ended_is_refused() -> None:
    bench = declared()
    attempts: list[Attempt] = []

    async def work() -> str:
        attempts.append(current_attempt())
        return "done"

    await bench.handle(work)
    with pytest.raises(ConfigurationError, match="after its attempt had ended"):
        await attempts[0].step("charge", nothing, deadline=5)


# -- the lease


@pytest.mark.parametrize("deadline", [0, 30, 31])
async def test_a_deadline_that_no_lease_can_cover_is_refused(deadline: float) -> None:
    bench = declared()

    async def work() -> str:
        await current_attempt().step("charge", nothing, deadline=deadline)
        return "paid"

    with pytest.raises(ConfigurationError, match="below the lease"):
        await bench.handle(work)


async def test_settle_must_not_be_less_than_a_steps_deadline() -> None:
    bench = StepBench(settle=DEADLINE - 1)
    with pytest.raises(ConfigurationError, match="settle"):
        await bench.deliver()
    assert bench.provider.calls == []


async def test_a_step_renews_a_lease_that_would_end_before_its_deadline() -> None:
    bench = declared()
    bench.wire.trips.clear()

    async def work() -> str:
        await bench.clock.sleep(9)
        await current_attempt().step("charge", nothing, deadline=25, last=True)
        return "paid"

    assert (await bench.handle(work)).outcome is Outcome.PROCESSED
    assert bench.wire.trips == ["insert", "replace", "replace"]


async def test_a_step_does_not_begin_when_the_lease_cannot_be_made_to_cover_it() -> None:
    bench = declared()
    called: list[bool] = []

    async def call() -> None:
        called.append(True)

    async def work() -> str:
        bench.wire.before["replace"] = slow_store
        await bench.clock.sleep(9)
        await current_attempt().step("charge", call, deadline=25, last=True)
        return "paid"

    async def slow_store() -> None:
        await bench.clock.sleep(6)

    with pytest.raises(TransientFailure, match="not begun"):
        await bench.handle(work)
    assert called == []
    assert await bench.stored() is None


async def test_a_step_does_not_begin_when_the_handlers_deadline_is_nearer() -> None:
    bench = StepBench(deadline=40.0, heartbeat=5.0)

    async def work() -> str:
        await bench.clock.sleep(31)
        return await bench.work()

    with pytest.raises(TransientFailure, match="not begun"):
        await bench.clock.run(bench.consumer.handle(a_delivery(), work, CODEC))
    assert bench.provider.calls == []


async def test_a_superseded_attempt_records_no_step_and_begins_no_other() -> None:
    bench = StepBench()
    bench.names = ["reserve", "charge"]
    caught: list[BaseException] = []

    async def work() -> str:
        attempt = current_attempt()
        if attempt.number > 1:
            return "by the next"

        async def reserve() -> str:
            stored = await bench.stored()
            assert stored is not None
            taken = stored.record.replaced(owner="other", attempt=2, status=Status.RELEASED)
            await bench.store.replace(taken, stored.etag)
            return "reserved"

        for name in ("reserve", "charge"):
            try:
                await attempt.step(name, reserve, deadline=5)
            except AttemptEnded as ended:
                caught.append(ended)
        return "swallowed"

    handled = await bench.clock.run(bench.consumer.handle(a_delivery(), work, CODEC))
    assert len(caught) == 2
    assert bench.fenced() == ["step"]
    assert handled.attempt == 3


# -- how they end


@pytest.mark.parametrize("end", ["returns", "raises", "refuses"])
async def test_an_uncertain_step_outranks_however_the_handler_ends(end: str) -> None:
    bench = StepBench()
    bench.provider.next = ["charge and raise"]

    async def work() -> str:
        try:
            await bench.work()
        except UncertainEffect:
            if end == "raises":
                raise HandlerFailed from None
            if end == "refuses":
                raise PermanentFailure("GaveUp") from None
        return "swallowed"

    with pytest.raises(UncertainEffect):
        await bench.clock.run(bench.consumer.handle(a_delivery(), work, CODEC))
    record = await bench.record()
    assert (record.status, record.settle) == (Status.UNCERTAIN, 12.0)
    assert [e.step for e in bench.events if isinstance(e, EffectUnknown)] == ["charge"]


async def test_a_call_past_its_deadline_is_cancelled_and_uncertain() -> None:
    bench = StepBench()
    bench.provider.next = ["hang"]
    began = bench.clock.monotonic()
    with pytest.raises(UncertainEffect, match="charge"):
        await bench.deliver()
    assert bench.clock.monotonic() - began == pytest.approx(DEADLINE)


@pytest.mark.parametrize("fault", ["hang", "charge and hang"])
async def test_a_shutdown_in_the_middle_of_a_call_leaves_the_record_uncertain(fault: str) -> None:
    bench = StepBench()
    bench.provider.next = [fault]
    task = asyncio.create_task(
        bench.consumer.handle(a_delivery(), lambda: bench.work(bench.life), CODEC)
    )
    await bench.clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(task)
    assert (await bench.record()).status is Status.UNCERTAIN
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    assert len(bench.provider.charges) == 1


async def test_the_handlers_deadline_in_the_middle_of_a_call_leaves_the_record_uncertain() -> None:
    bench = StepBench(deadline=30.0)

    async def work() -> str:
        await bench.clock.sleep(19.5)
        return await bench.work()

    bench.provider.next = ["hang"]
    # the handler of a step of 10 s that begins at 19.5 s has half a second left after it
    with pytest.raises(UncertainEffect):
        await bench.clock.run(bench.consumer.handle(a_delivery(), work, CODEC))
    assert (await bench.record()).status is Status.UNCERTAIN


async def test_a_step_in_a_thread_is_open_until_the_thread_returns() -> None:
    bench = declared()
    release = threading.Event()

    def blocking() -> str:
        release.wait(60)
        return "done"

    async def work() -> str:
        return await current_attempt().step("charge", blocking, deadline=5)

    task = asyncio.create_task(bench.consumer.handle(a_delivery(), work, CODEC))
    await bench.clock.advance(25)
    assert (await bench.record()).status is Status.IN_PROGRESS
    assert not task.done()
    release.set()
    handled = await asyncio.wait_for(task, 30)  # a thread returns in real time
    assert (handled.outcome, handled.result) == (Outcome.PROCESSED, "done")


async def test_a_refusal_for_good_after_a_recorded_step_keeps_the_step() -> None:
    bench = StepBench()
    bench.after = PermanentFailure("OutOfStock")
    handled = await bench.deliver()
    assert (handled.outcome, handled.reason) == (Outcome.FAILED, "OutOfStock")
    assert [(s.name, s.done) for s in (await bench.record()).steps] == [("charge", True)]


async def test_a_step_refused_for_now_before_any_other_leaves_no_record() -> None:
    bench = StepBench()
    bench.provider.next, bench.provider.error = ["raise"], TransientFailure("throttled")
    with pytest.raises(TransientFailure, match="throttled"):
        await bench.deliver()
    assert await bench.stored() is None


async def test_a_result_that_cannot_be_recorded_while_the_store_is_down_is_in_doubt() -> None:
    bench = StepBench("quarantine")
    bench.consumer = bench.a_consumer(WiredStore(bench.store, bench.wire))
    bench.provider.next = ["charge"]

    async def work() -> str:
        bench.wire.down = True
        return await bench.work()

    with pytest.raises(StoreUnavailable):
        await bench.clock.run(bench.consumer.handle(a_delivery(), work, CODEC))
    bench.wire.down = False
    assert (await bench.deliver(bench.other)).outcome is Outcome.QUARANTINED
    assert len(bench.provider.calls) == 1


@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_lost_answer_to_a_steps_record_is_no_reason_to_call_again(
    loss: Any, times: int
) -> None:
    bench = StepBench()
    bench.consumer = bench.a_consumer(WiredStore(bench.store, bench.wire))
    bench.wire.lose["replace"] = [loss] * times
    assert (await bench.deliver()).outcome is Outcome.PROCESSED
    assert len(bench.provider.calls) == 1
    assert bench.fenced() == []


# -- the handler as one step


def whole(policy: Any = None) -> Bench:
    chosen = policy or Rerun(provider_key_retention=1e6)
    return Bench(effects=Effects(policy=chosen, settle=12.0, whole_handler=True))


async def test_a_handler_that_is_one_step_costs_no_trip_of_its_own() -> None:
    bench = whole()
    assert (await bench.handle()).result == "result 1"
    assert bench.wire.trips == ["insert", "replace"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(HandlerFailed(), Status.UNCERTAIN), (TransientFailure("not now"), None)],
)
async def test_a_handler_that_is_one_step_is_uncertain_unless_it_knows_better(
    error: Exception, status: Status | None
) -> None:
    bench = whole()
    bench.effect.error = error
    with pytest.raises(TransientFailure):
        await bench.handle()
    stored = await bench.stored()
    assert (stored.record.status if stored else None) is status
    bench.effect.error = None
    assert (await bench.handle()).outcome is Outcome.PROCESSED


async def test_a_handler_that_is_one_step_is_quarantined_after_a_crash_where_so_stated() -> None:
    bench = whole(Quarantine())
    bench.effect.error = HandlerFailed()
    with pytest.raises(UncertainEffect):
        await bench.handle()
    assert (await bench.handle()).outcome is Outcome.QUARANTINED
    assert bench.effect.begun == 1


async def test_a_thread_past_its_deadline_is_an_open_effect_to_whoever_takes_over() -> None:
    effects = Effects(policy=Quarantine(), settle=12.0, whole_handler=True)
    bench = Bench(effects=effects, deadline=25.0)
    let_go, ended = threading.Event(), threading.Event()

    def blocking() -> str:
        let_go.wait(60)
        ended.set()
        return "late"

    try:
        handling = asyncio.create_task(
            bench.consumer.handle(a_delivery(), as_work(blocking), CODEC)
        )
        await bench.clock.advance(25 + 5)
        with pytest.raises(DeadlineExceeded):
            await handling
        handled = await bench.handle(consumer=bench.other)
        assert not ended.is_set()
    finally:
        let_go.set()
    await asyncio.to_thread(ended.wait, 60)
    await bench.clock.advance(1)
    assert handled.outcome is Outcome.QUARANTINED
    assert bench.effect.begun == 0
    record = await bench.record()
    assert (record.status, record.failure_reason) == (Status.QUARANTINED, "UnknownEffect")


async def test_a_handler_that_is_one_step_may_run_longer_than_a_lease() -> None:
    bench = whole()
    bench.effect.seconds = 100.0
    assert (await bench.handle()).outcome is Outcome.PROCESSED


async def test_a_handler_that_is_one_step_has_no_steps_within() -> None:
    bench = whole()

    async def work() -> str:
        return await current_attempt().step("charge", lambda: "x", deadline=5)

    with pytest.raises(UncertainEffect) as raised:
        await bench.handle(work)
    cause = raised.value.__cause__
    assert cause is not None
    assert isinstance(cause.__cause__, ConfigurationError)


async def _text(text: str) -> str:
    return text


async def test_a_call_that_ends_well_although_it_is_cancelled_is_recorded_as_done() -> None:
    bench = declared()

    async def call() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await bench.clock.sleep(4)
        return "done"

    async def work() -> str:
        return await current_attempt().step("charge", call, deadline=5)

    task = asyncio.create_task(bench.consumer.handle(a_delivery(), work, CODEC))
    await bench.clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(task)
    record = await bench.record()
    assert record.status is Status.RELEASED
    assert [(s.name, s.done, s.result) for s in record.steps] == [("charge", True, '"done"')]


async def test_a_store_that_cannot_hold_a_steps_result_keeps_the_step_without_it() -> None:
    bench = StepBench()
    bench.consumer = bench.a_consumer(SmallStore(bench.store))
    bench.names, bench.after = ["charge"], HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.deliver()
    record = await bench.record()
    assert [(s.name, s.done, s.result) for s in record.steps] == [("charge", True, None)]
    assert any(isinstance(event, ResultNotKept) for event in bench.events)


class SmallStore(WiredStore):
    """A store that holds no results."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Wire())

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if any(step.result for step in record.steps):
            raise MalformedContent("too large")
        return await super().replace(record, etag)
