"""Attempts in flight: waiting, leases, heartbeats, deadlines, takeover and fencing."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from shared.idempotency import (
    DeadlineExceeded,
    Outcome,
    PermanentFailure,
    ResultCodec,
    Status,
    StoreUnavailable,
    current_attempt,
)
from shared.idempotency.events import HandlerRan, TakenOver
from shared.idempotency.running import as_work
from shared.idempotency.testing import a_record
from tests.unit.doubles import CODEC, KEY, OTHER, SAME, Bench, HandlerFailed, a_delivery

# -- waiting


async def test_given_an_attempt_in_flight_when_it_completes_then_who_waited_is_a_duplicate() -> (
    None
):
    bench = Bench()
    bench.effect.seconds = 20.0
    running = bench.begin()
    await bench.clock.advance(1)
    waited = await bench.handle(consumer=bench.other)
    assert (waited.outcome, waited.result) == (Outcome.DUPLICATE, "result 1")
    assert (await running).outcome is Outcome.PROCESSED
    assert bench.clock.monotonic() < 23


async def test_given_an_attempt_in_flight_when_it_releases_then_who_waited_does_the_work() -> None:
    bench = Bench()
    bench.effect.seconds, bench.effect.error = 5.0, HandlerFailed()
    running = bench.begin()
    await bench.clock.advance(1)
    second = asyncio.create_task(bench.other.handle(a_delivery(), bench.effect, CODEC))
    await bench.clock.advance(5)
    bench.effect.error = None
    waited = await bench.clock.run(second)
    assert (waited.outcome, waited.attempt) == (Outcome.PROCESSED, 1)
    with pytest.raises(HandlerFailed):
        await running


async def test_given_other_content_in_flight_then_it_waits_before_it_is_a_mismatch() -> None:
    """⚠ The other attempt may still release, and then this one is the one that counts."""
    bench = Bench()
    bench.effect.seconds = 5.0
    running = bench.begin()
    await bench.clock.advance(1)
    assert (await bench.handle(wait=0, fingerprint=OTHER)).outcome is Outcome.IN_FLIGHT
    assert (await bench.handle(fingerprint=OTHER)).outcome is Outcome.MISMATCH
    await running


async def test_given_the_wait_is_exhausted_then_it_is_in_flight_with_what_is_left() -> None:
    bench = Bench()
    bench.effect.seconds = 100.0
    running = bench.begin()
    await bench.clock.advance(1)
    began = bench.clock.monotonic()
    handled = await bench.handle(consumer=bench.other)
    assert handled.outcome is Outcome.IN_FLIGHT
    assert bench.clock.monotonic() - began == pytest.approx(bench.policy.wait, abs=1)
    assert 1.0 <= handled.retry_after <= bench.policy.lease + 2
    await bench.clock.run(running)


async def test_given_no_wait_then_it_is_answered_at_once() -> None:
    bench = Bench()
    bench.effect.seconds = 100.0
    running = bench.begin()
    await bench.clock.advance(1)
    began = bench.clock.monotonic()
    handled = await bench.handle(consumer=bench.other, wait=0)
    assert handled.outcome is Outcome.IN_FLIGHT
    assert handled.retry_after == pytest.approx(31, abs=0.1)
    assert bench.clock.monotonic() == began
    await bench.clock.run(running)


async def test_given_all_slots_are_taken_then_nobody_else_waits_and_others_are_served() -> None:
    """One hot key must not keep the host from the rest."""
    bench = Bench(waiting_slots=3)
    bench.effect.seconds = 20.0
    running = bench.begin()
    await bench.clock.advance(1)
    waiting = [bench.begin() for _ in range(10)]
    await bench.clock.advance(0.01)
    turned_away = [task for task in waiting if task.done()]
    assert len(turned_away) == 7
    assert {task.result().outcome for task in turned_away} == {Outcome.IN_FLIGHT}
    bench.effect.seconds = 0.0
    assert (await bench.handle(key="another")).outcome is Outcome.PROCESSED
    await bench.clock.run(asyncio.gather(*waiting, running))
    assert sum(task.result().outcome is Outcome.DUPLICATE for task in waiting) == 3


async def test_slots_are_given_back_also_when_a_waiting_delivery_is_cancelled() -> None:
    bench = Bench(waiting_slots=1)
    bench.effect.seconds = 20.0
    running = bench.begin()
    await bench.clock.advance(1)
    for _ in range(3):
        waiting = bench.begin()
        await bench.clock.advance(0.5)
        assert not waiting.done()
        waiting.cancel()
        await bench.clock.advance(0)
    await bench.clock.run(running)


# -- leases and takeover


async def test_given_the_process_died_when_its_lease_ends_then_the_next_delivery_takes_over() -> (
    None
):
    bench = Bench()
    await bench.store.insert(
        a_record(KEY, consumer="charge_payment", owner="dead", fingerprint=SAME)
    )
    handled = await bench.handle()
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 2)
    assert 32.0 <= bench.clock.monotonic() < 36.0
    assert [type(e) for e in bench.events if isinstance(e, TakenOver)] == [TakenOver]


async def test_a_heartbeat_keeps_the_lease_of_a_slow_handler() -> None:
    bench = Bench(deadline=200.0)
    bench.effect.seconds = 150.0
    running = bench.begin()
    await bench.clock.advance(149)
    stored = await bench.stored()
    assert stored is not None
    assert stored.age <= bench.policy.heartbeat
    assert (await bench.clock.run(running)).outcome is Outcome.PROCESSED
    assert bench.wire.trips == ["insert"] + ["replace"] * 15  # a renewal each 10 s, and completion


async def test_the_heartbeat_stops_at_the_deadline_and_a_hung_handler_is_cancelled() -> None:
    """⚠ A heartbeat without an end would let a hung handler own its key for ever."""
    bench = Bench(deadline=25.0)
    bench.effect.seconds = 10_000.0
    with pytest.raises(DeadlineExceeded, match=r"charge_payment.*25 s"):
        await bench.handle()
    assert bench.clock.monotonic() == 25.0
    assert bench.effect.cancelled == 1
    assert bench.wire.trips == ["insert", "replace", "replace", "delete"]
    assert await bench.stored() is None


async def test_a_handler_that_ignores_its_cancellation_keeps_its_record_until_the_lease_ends() -> (
    None
):
    bench = Bench(deadline=25.0)
    let_go = asyncio.Event()

    async def deaf() -> str:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        return "late"

    try:
        with pytest.raises(DeadlineExceeded):
            await bench.handle(deaf)
        assert (await bench.record()).status is Status.IN_PROGRESS
        renewals = bench.wire.trips.count("replace")
        await bench.clock.advance(20)
        assert bench.wire.trips.count("replace") == renewals
    finally:
        let_go.set()


async def test_a_handler_that_returns_after_it_was_told_to_stop_has_done_its_work() -> None:
    bench = Bench(deadline=25.0)

    async def finishes_first() -> str:
        try:
            await bench.clock.sleep(1000)
        except asyncio.CancelledError:
            await bench.clock.sleep(1)
        return "done all the same"

    handled = await bench.handle(finishes_first)
    assert (handled.outcome, handled.result) == (Outcome.PROCESSED, "done all the same")
    assert (await bench.record()).status is Status.COMPLETED


async def test_a_synchronous_handler_that_outlives_its_deadline_is_not_released_under_its_feet() -> (
    None
):
    bench = Bench(deadline=25.0)
    let_go = threading.Event()
    work = as_work(lambda: let_go.wait(10) and "late")
    handling = asyncio.create_task(bench.consumer.handle(a_delivery(), work, ResultCodec(str)))
    await bench.clock.advance(24)
    assert not handling.done()
    await bench.clock.advance(1 + 5)
    with pytest.raises(DeadlineExceeded):
        await handling
    assert (await bench.record()).status is Status.IN_PROGRESS
    assert "delete" not in bench.wire.trips
    let_go.set()


async def test_a_synchronous_handler_runs_in_a_thread_and_sees_its_attempt() -> None:
    bench = Bench()

    def blocking() -> str:
        time.sleep(0.01)
        return f"{current_attempt().key} in {threading.current_thread() is threading.main_thread()}"

    handled = await bench.consumer.handle(a_delivery(), as_work(blocking), CODEC)
    assert handled.result == "order-1 in False"


# -- cancellation


async def test_given_the_delivery_is_cancelled_then_the_handler_is_and_the_key_is_free() -> None:
    bench = Bench()
    bench.effect.seconds = 50.0
    running = bench.begin()
    await bench.clock.advance(5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(running)
    assert bench.effect.cancelled == 1
    assert await bench.stored() is None


async def test_given_it_is_cancelled_but_the_handler_finishes_then_the_work_is_recorded() -> None:
    bench = Bench()

    async def finishes_first() -> str:
        try:
            await bench.clock.sleep(50)
        except asyncio.CancelledError:
            return "done all the same"
        raise AssertionError("not cancelled")

    running = bench.begin(finishes_first)
    await bench.clock.advance(5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(running)
    assert (await bench.record()).status is Status.COMPLETED


async def test_given_it_is_cancelled_while_a_thread_runs_then_the_record_is_left_alone() -> None:
    bench = Bench()
    let_go = threading.Event()
    work = as_work(lambda: let_go.wait(10) and "late")
    handling = asyncio.create_task(bench.consumer.handle(a_delivery(), work, ResultCodec(str)))
    await bench.clock.advance(1)
    handling.cancel()
    await bench.clock.advance(6)
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert (await bench.record()).status is Status.IN_PROGRESS
    let_go.set()


async def test_given_it_is_cancelled_while_the_completion_is_written_then_it_is_not_released() -> (
    None
):
    """The effect has happened: a record that is deleted now would let it happen again."""
    bench = Bench()

    async def cancelled_on_the_way() -> None:
        running.cancel()
        await bench.clock.sleep(1)

    bench.wire.before["replace"] = cancelled_on_the_way
    running = bench.begin()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(running)
    assert (await bench.record()).status is Status.IN_PROGRESS
    assert bench.effect.done == 1


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end the test run itself."""


async def test_given_any_base_exception_then_the_key_is_free() -> None:
    bench = Bench()
    bench.effect.error = Interrupted()
    with pytest.raises(Interrupted):
        await bench.handle()
    assert await bench.stored() is None


def test_given_a_keyboard_interrupt_then_the_key_is_free_before_the_process_ends() -> None:
    bench = Bench()

    async def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(bench.consumer.handle(a_delivery(), interrupted, CODEC))
    assert asyncio.run(bench.stored()) is None


# -- fencing


async def _superseded(bench: Bench, to: Status | None = Status.IN_PROGRESS) -> None:
    """Another worker, whose clock is far ahead, takes the record over."""
    stored = await bench.stored()
    assert stored is not None
    if to is None:
        await bench.store.delete(stored.record, stored.etag)
        return
    taken = stored.record.replaced(
        owner="usurper", attempt=2, status=to, result='"theirs"', finished_at=bench.clock.now()
    )
    assert await bench.store.replace(taken, stored.etag) is not None


async def test_given_it_is_superseded_while_running_then_it_is_cancelled_and_decided_again() -> (
    None
):
    bench = Bench(deadline=200.0)
    bench.effect.seconds = 100.0
    running = bench.begin()
    await bench.clock.advance(5)
    await _superseded(bench, Status.COMPLETED)
    handled = await bench.clock.run(running)
    assert (handled.outcome, handled.result) == (Outcome.DUPLICATE, "theirs")
    assert bench.effect.cancelled == 1
    assert bench.fenced() == ["renew"]
    assert bench.clock.monotonic() == 10.0  # at its next heartbeat


async def test_given_it_is_superseded_when_the_other_releases_then_it_does_the_work_anew() -> None:
    bench = Bench(deadline=200.0)
    bench.effect.seconds = 12.0
    running = bench.begin()
    await bench.clock.advance(5)
    await _superseded(bench, None)
    handled = await bench.clock.run(running)
    assert handled.outcome is Outcome.PROCESSED
    assert (bench.effect.begun, bench.effect.cancelled, bench.effect.done) == (2, 1, 1)


@pytest.mark.parametrize("status", [Status.IN_PROGRESS, Status.COMPLETED, Status.QUARANTINED])
async def test_a_late_finisher_changes_nothing_and_is_told_what_the_store_holds(
    status: Status,
) -> None:
    bench = Bench()
    bench.effect.seconds = 5.0
    running = bench.begin()
    await bench.clock.advance(1)
    await _superseded(bench, status)
    before = await bench.stored()
    handled = await bench.clock.run(running)
    after = await bench.stored()
    assert before is not None
    assert after is not None
    assert handled.outcome is not Outcome.PROCESSED or status is Status.IN_PROGRESS
    assert bench.fenced() == ["complete"]
    if status is not Status.IN_PROGRESS:
        assert after.etag == before.etag


async def test_a_late_failure_does_not_delete_a_record_that_another_completed() -> None:
    bench = Bench()
    bench.effect.seconds, bench.effect.error = 5.0, HandlerFailed()
    running = bench.begin()
    await bench.clock.advance(1)
    await _superseded(bench, Status.COMPLETED)
    with pytest.raises(HandlerFailed):
        await bench.clock.run(running)
    assert (await bench.record()).owner == "usurper"
    assert bench.fenced() == ["release"]


async def test_a_late_permanent_failure_does_not_overwrite_a_completion() -> None:
    bench = Bench()
    bench.effect.seconds, bench.effect.error = 5.0, PermanentFailure("No")
    running = bench.begin()
    await bench.clock.advance(1)
    await _superseded(bench, Status.COMPLETED)
    handled = await bench.clock.run(running)
    assert (handled.outcome, handled.failed) == (Outcome.DUPLICATE, False)
    assert bench.fenced() == ["fail"]


async def test_ones_own_heartbeat_is_no_stranger() -> None:
    """⚠ Its answer was lost: the completion meets an ETag it does not know, of its own owner."""
    bench = Bench()
    bench.effect.seconds = 15.0
    bench.wire.lose["replace"] = ["answer"] * 4
    handled = await bench.handle()
    assert handled.outcome is Outcome.PROCESSED
    assert bench.fenced() == []


async def test_a_renewal_never_rewrites_a_completed_record() -> None:
    bench = Bench()
    bench.effect.seconds = 10.0  # ends at the very moment of the heartbeat
    await bench.handle()
    record = await bench.record()
    assert (record.status, record.result) == (Status.COMPLETED, '"result 1"')
    before = await bench.stored()
    await bench.clock.advance(60)
    after = await bench.stored()
    assert before is not None
    assert after is not None
    assert after.etag == before.etag


# -- the store is down


async def test_given_the_store_is_down_then_nothing_runs() -> None:
    bench = Bench()
    bench.wire.down = True
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert bench.effect.begun == 0
    assert bench.clock.monotonic() < 5
    assert bench.wire.trips == ["insert"] * 4


async def test_given_the_store_throttles_then_its_hint_is_honoured_and_handed_on() -> None:
    bench = Bench()
    bench.wire.down, bench.wire.retry_after = True, 6.0
    with pytest.raises(StoreUnavailable) as refused:
        await bench.handle()
    assert refused.value.retry_after == 6.0
    assert bench.clock.monotonic() == 18.0  # three pauses of six seconds


async def test_given_a_hint_beyond_the_lease_then_it_is_handed_on_at_once() -> None:
    bench = Bench()
    bench.wire.down, bench.wire.retry_after = True, 120.0
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert bench.clock.monotonic() == 0.0


async def test_given_the_store_goes_down_while_running_then_the_lease_is_lost_and_it_is_cancelled() -> (
    None
):
    bench = Bench(deadline=200.0)
    bench.effect.seconds = 100.0
    running = bench.begin()
    await bench.clock.advance(5)
    bench.wire.down = True
    with pytest.raises(StoreUnavailable, match="lease could not be renewed"):
        await bench.clock.run(running)
    assert bench.effect.cancelled == 1
    assert 30.0 <= bench.clock.monotonic() <= 32.0  # before anybody else may take over


async def test_given_a_short_outage_while_running_then_the_work_is_completed() -> None:
    bench = Bench(deadline=200.0)
    bench.effect.seconds = 60.0
    running = bench.begin()
    await bench.clock.advance(8)
    bench.wire.down = True
    await bench.clock.advance(15)
    bench.wire.down = False
    assert (await bench.clock.run(running)).outcome is Outcome.PROCESSED
    assert bench.effect.begun == 1


async def test_given_the_completion_cannot_be_written_then_the_record_stays_unfinished() -> None:
    """The effect has happened: not acknowledged, never a fresh start for the next one."""
    bench = Bench()
    bench.wire.before["replace"] = _goes_down(bench)
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    record = await bench.record()
    assert record.status is Status.IN_PROGRESS
    assert 25.0 < bench.clock.monotonic() <= 30.0  # retried within the lease
    bench.wire.down = False
    handled = await bench.handle(redelivered=True)
    assert (handled.outcome, handled.attempt) == (Outcome.PROCESSED, 2)


def _goes_down(bench: Bench) -> Callable[[], Awaitable[None]]:
    async def down() -> None:
        bench.wire.down = True

    return down


async def test_given_the_release_cannot_be_written_then_the_handlers_error_is_still_told() -> None:
    bench = Bench()
    bench.effect.error = HandlerFailed("first")
    bench.wire.before["delete"] = _goes_down(bench)
    with pytest.raises(HandlerFailed, match="first"):
        await bench.handle()
    assert (await bench.record()).status is Status.IN_PROGRESS


async def test_a_claim_that_took_long_is_renewed_before_the_handler_starts() -> None:
    """The lease counts from before the claim was sent: its end may be near when it is answered."""
    bench = Bench()

    async def slow_answer() -> None:
        await bench.clock.sleep(20)

    bench.wire.before["insert"] = slow_answer
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.wire.trips == ["insert", "replace", "replace"]


async def test_a_handler_that_blocked_the_event_loop_beyond_its_lease_gets_one_renewal() -> None:
    bench = Bench(deadline=200.0)

    async def blocking() -> str:
        bench.clock._passed += 40  # nothing else ran meanwhile
        await bench.clock.sleep(5)
        return "done"

    assert (await bench.handle(blocking)).outcome is Outcome.PROCESSED


async def test_only_handlers_that_ran_are_timed() -> None:
    bench = Bench()
    await bench.handle()
    await bench.handle()
    assert len([event for event in bench.events if isinstance(event, HandlerRan)]) == 1
