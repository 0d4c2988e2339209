"""The two-phase form: what each delivery is told, and what it leaves behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.idempotency import (
    Cause,
    ConfigurationError,
    Consumer,
    Delivery,
    MissingKey,
    Outcome,
    PermanentFailure,
    Policy,
    Status,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.events import DeliveryFaulted, DeliveryHandled, Event, ResultNotKept
from shared.idempotency.records import Record, Step
from shared.idempotency.stores.memory import MemoryStore
from tests.unit.doubles import CODEC, KEY, OTHER, SAME, Bench, HandlerFailed, WiredStore, a_delivery


async def test_given_nothing_when_delivered_then_the_work_is_done_and_recorded() -> None:
    bench = Bench()
    handled = await bench.handle(sequence_number=7, trace_parent="00-aa-bb-01")
    record = await bench.record()
    assert (handled.outcome, handled.result, handled.attempt) == (Outcome.PROCESSED, "result 1", 1)
    assert record.status is Status.COMPLETED
    assert record.result == '"result 1"'
    assert record.fingerprint == SAME
    assert record.first_sequence_number == 7
    assert record.trace_parent == "00-aa-bb-01"
    assert record.expires_at == pytest.approx(bench.clock.now() + bench.policy.retention)


async def test_given_it_was_done_when_delivered_again_then_it_is_a_duplicate_with_the_result() -> (
    None
):
    bench = Bench()
    await bench.handle(trace_parent="00-origin-01")
    await bench.clock.advance(60)
    again = await bench.handle(trace_parent="00-later-01")
    assert (again.outcome, again.result) == (Outcome.DUPLICATE, "result 1")
    assert again.age == pytest.approx(60)
    assert again.origin == "00-origin-01"
    assert bench.effect.done == 1


async def test_given_a_takeover_that_failed_cleanly_then_the_crashed_attempt_is_not_forgotten() -> (
    None
):
    """It may have had its effect: other content under the key stays a mismatch."""
    bench = Bench()
    stored = await bench.store.insert(
        Record(
            consumer="charge_payment",
            key=KEY,
            status=Status.IN_PROGRESS,
            owner="crashed",
            fingerprint=SAME,
            lease=-10.0,
        )
    )
    assert stored is not None

    async def fails() -> str:
        raise HandlerFailed

    with pytest.raises(HandlerFailed):
        await bench.handle(fails)
    assert (await bench.record()).status is Status.RELEASED
    other = await bench.handle(fingerprint=OTHER)
    assert other.outcome is Outcome.MISMATCH
    assert (await bench.handle()).outcome is Outcome.PROCESSED


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        ({"sequence_number": 5}, {"sequence_number": 5, "redelivered": True}, Cause.REDELIVERY),
        ({"sequence_number": 5}, {"sequence_number": 5}, Cause.REDELIVERY),
        ({"sequence_number": 5}, {"sequence_number": 6}, Cause.RESEND),
        ({"sequence_number": 5}, {"sequence_number": 6, "redelivered": True}, Cause.RESEND),
        ({}, {"redelivered": True}, Cause.REDELIVERY),
        ({}, {}, Cause.RESEND),
    ],
)
async def test_a_duplicate_tells_whether_it_was_redelivered_or_sent_again(
    first: dict[str, Any], second: dict[str, Any], cause: Cause
) -> None:
    bench = Bench()
    await bench.handle(**first)
    assert (await bench.handle(**second)).cause is cause


async def test_two_messages_that_share_a_correlation_id_both_run() -> None:
    bench = Bench()
    a = await bench.handle(key="a", correlation_id="c")
    b = await bench.handle(key="b", correlation_id="c")
    assert a.outcome is b.outcome is Outcome.PROCESSED


async def test_one_key_with_other_correlation_time_and_sequence_is_a_duplicate() -> None:
    bench = Bench()
    await bench.handle(correlation_id="c1", sent_at=1.0, sequence_number=1)
    again = await bench.handle(correlation_id="c2", sent_at=2.0, sequence_number=2)
    assert again.outcome is Outcome.DUPLICATE


async def test_given_other_content_when_delivered_then_it_is_a_mismatch_naming_the_fields() -> None:
    bench = Bench()
    await bench.handle(body=b'{"id":1,"total":"1.00"}')
    handled = await bench.handle(body=b'{"id":1,"total":"9.99"}', fingerprint=OTHER)
    assert handled.outcome is Outcome.MISMATCH
    assert handled.reason == "PayloadMismatch"
    assert "changed: total" in handled.description
    assert "9.99" not in handled.description
    assert bench.effect.done == 1


async def test_evidence_is_left_out_where_the_policy_says_so() -> None:
    bench = Bench(evidence=False)
    await bench.handle(body=b'{"id":1}')
    assert (await bench.record()).evidence is None
    handled = await bench.handle(body=b'{"id":2}', fingerprint=OTHER)
    assert handled.outcome is Outcome.MISMATCH
    assert "changed" not in handled.description


@pytest.mark.parametrize("key", ["", "x" * 1025])
async def test_a_delivery_without_a_usable_key_never_runs(key: str) -> None:
    bench = Bench()
    with pytest.raises(Exception, match="deduplication key") as refused:
        await bench.handle(key=key)
    assert isinstance(refused.value, MissingKey) == (key == "")
    assert bench.effect.begun == 0
    assert bench.wire.trips == []


def test_a_consumer_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="name"):
        Consumer("", MemoryStore())


# -- failures


async def test_given_the_handler_raises_then_the_key_is_free_for_a_retry() -> None:
    bench = Bench()
    bench.effect.error = HandlerFailed("try again")
    with pytest.raises(HandlerFailed, match="try again"):
        await bench.handle()
    assert await bench.stored() is None
    bench.effect.error = None
    assert (await bench.handle(redelivered=True)).outcome is Outcome.PROCESSED


@pytest.mark.parametrize(
    "error", [TransientFailure("later", retry_after=9.0), StoreUnavailable("nested")]
)
async def test_what_the_handler_raises_reaches_the_caller_as_it_is(error: Exception) -> None:
    bench = Bench()
    bench.effect.error = error
    with pytest.raises(type(error)) as raised:
        await bench.handle()
    assert raised.value is error


async def test_given_recorded_steps_when_the_handler_raises_then_they_are_kept() -> None:
    """⚠ Deleting the record would forget what was done at a third party."""
    bench = Bench()
    step = Step(name="charge", begun_at=0.0, deadline=5.0, done=True, result='"id-1"')
    await bench.handle()
    done = await bench.stored()
    assert done is not None
    crashed = done.record.replaced(status=Status.IN_PROGRESS, steps=(step,), finished_at=None)
    await bench.store.replace(crashed, done.etag)
    await bench.clock.advance(40)
    bench.effect.error = HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.handle()
    record = await bench.record()
    assert (record.status, record.steps, record.attempt) == (Status.RELEASED, (step,), 2)
    bench.effect.error = None
    continued = await bench.handle()
    assert (continued.outcome, continued.attempt) == (Outcome.PROCESSED, 3)
    assert (await bench.record()).steps == ()


async def test_given_a_permanent_failure_then_it_is_recorded_and_answers_duplicates() -> None:
    bench = Bench()
    bench.effect.error = PermanentFailure("CardRefused", "the card is expired")
    first = await bench.handle()
    again = await bench.handle()
    assert (first.outcome, first.reason) == (Outcome.FAILED, "CardRefused")
    assert (again.outcome, again.failed) == (Outcome.DUPLICATE, True)
    assert (again.reason, again.description) == ("CardRefused", "the card is expired")
    assert bench.effect.begun == 1


async def test_a_refusal_is_recorded_short_enough_for_any_store_and_dead_letter() -> None:
    bench = Bench()
    bench.effect.error = PermanentFailure("R" * 5000, "d" * 50_000)
    await bench.handle()
    record = await bench.record()
    assert len(record.failure_reason or "") == 100
    assert len(record.failure_description or "") == 1000


async def test_given_a_result_too_large_then_the_work_is_completed_without_it() -> None:
    bench = Bench(max_result_bytes=8)
    first = await bench.handle()
    again = await bench.handle()
    assert (first.outcome, first.result, first.result_kept) == (Outcome.PROCESSED, None, False)
    assert (again.outcome, again.result, again.result_kept) == (Outcome.DUPLICATE, None, False)
    assert [e.key for e in bench.events if isinstance(e, ResultNotKept)] == [KEY]
    assert bench.effect.done == 1


# -- age


async def test_a_message_beyond_max_age_is_too_old_and_does_not_run() -> None:
    bench = Bench(max_age=100.0)
    handled = await bench.handle(sent_at=bench.clock.now() - 101)
    assert (handled.outcome, handled.reason) == (Outcome.TOO_OLD, "TooOld")
    assert bench.effect.begun == 0


async def test_a_message_within_max_age_or_without_a_trusted_time_runs() -> None:
    bench = Bench(max_age=100.0)
    young = await bench.handle(key="a", sent_at=bench.clock.now() - 99)
    timeless = await bench.handle(key="b", sent_at=None)
    assert young.outcome is timeless.outcome is Outcome.PROCESSED


async def test_an_operators_admission_overrides_the_age() -> None:
    bench = Bench(max_age=100.0)
    handled = await bench.handle(sent_at=bench.clock.now() - 101, forced=True)
    assert handled.outcome is Outcome.PROCESSED


async def test_a_finished_record_that_is_still_there_stays_a_duplicate_however_old() -> None:
    bench = Bench(max_age=100.0, retention=100.0)
    sent_at = bench.clock.now()
    await bench.handle(sent_at=sent_at)
    await bench.clock.advance(10_000)
    assert (await bench.handle(sent_at=sent_at)).outcome is Outcome.DUPLICATE


async def test_an_old_message_whose_record_is_released_while_it_waits_does_not_run() -> None:
    bench = Bench(max_age=100.0)
    bench.effect.seconds, bench.effect.error = 5.0, HandlerFailed()
    running = bench.begin()
    await bench.clock.advance(1)
    handled = await bench.handle(bench.effect, consumer=bench.other, sent_at=0.0)
    assert handled.outcome is Outcome.TOO_OLD
    with pytest.raises(HandlerFailed):
        await running
    assert bench.effect.begun == 1


# -- local memory


async def test_an_operators_forced_resend_is_not_answered_from_memory() -> None:
    """⚠ The operator has just released the record; this process still remembers it."""
    bench = Bench(memory=10.0)
    await bench.handle()
    stored = await bench.stored()
    assert stored is not None
    await bench.store.delete(stored.record, stored.etag)
    assert (await bench.handle()).outcome is Outcome.DUPLICATE
    assert (await bench.handle(forced=True)).outcome is Outcome.PROCESSED


async def test_memory_decides_by_the_same_table() -> None:
    bench = Bench(memory=10.0)
    await bench.handle(body=b'{"a":1}')
    handled = await bench.handle(fingerprint=OTHER, body=b'{"a":2}')
    assert handled.outcome is Outcome.MISMATCH
    assert "changed: a" in handled.description
    assert bench.wire.trips == ["insert", "replace"]


async def test_failures_are_not_answered_from_memory() -> None:
    bench = Bench(memory=10.0)
    bench.effect.error = PermanentFailure("No")
    await bench.handle()
    assert (await bench.handle()).outcome is Outcome.DUPLICATE
    assert bench.wire.trips == ["insert", "replace", "insert", "read"]


# -- several at once


async def test_consumers_on_one_store_do_not_suppress_each_other() -> None:
    bench = Bench()
    email, loyalty = (
        bench.a_consumer(bench.store, "email"),
        bench.a_consumer(bench.store, "loyalty"),
    )
    a = await bench.handle(consumer=email)
    b = await bench.handle(consumer=loyalty)
    assert a.outcome is b.outcome is Outcome.PROCESSED


async def test_nested_consumers_complete_each_under_its_own_key() -> None:
    bench = Bench()
    inner = bench.a_consumer(bench.store, "inner")

    async def outer_work() -> str:
        handled = await inner.handle(a_delivery(key="inner-key"), bench.effect, CODEC)
        return f"outer of {handled.result}"

    async with asyncio.timeout(5):
        outer = await bench.consumer.handle(a_delivery(key="outer-key"), outer_work, CODEC)
    assert outer.result == "outer of result 1"
    assert (await bench.record("outer-key")).result == '"outer of result 1"'
    nested = await bench.store.read("inner", "inner-key")
    assert nested is not None
    assert nested.record.result == '"result 1"'


async def test_a_hundred_concurrent_deliveries_each_get_their_own_result() -> None:
    bench = Bench(waiting_slots=100)

    def work_of(number: int) -> Callable[[], Awaitable[str]]:
        async def work() -> str:
            await bench.clock.sleep(1 + number % 7)
            return f"result of {number}"

        return work

    deliveries = [
        bench.consumer.handle(a_delivery(key=f"k{n % 50}"), work_of(n % 50), CODEC)
        for n in range(100)
    ]
    handled = await bench.clock.run(asyncio.gather(*deliveries))
    assert [h.result for h in handled] == [f"result of {n % 50}" for n in range(100)]
    assert sum(h.outcome is Outcome.PROCESSED for h in handled) == 50


async def test_two_consumers_on_one_store_keep_their_own_policies() -> None:
    bench = Bench()
    short = Consumer("short", bench.store, policy=Policy(retention=10.0), clock=bench.clock)
    long = Consumer("long", bench.store, policy=Policy(retention=99.0), clock=bench.clock)
    for consumer in (short, long):
        await bench.handle(consumer=consumer)
    kept = []
    for name in ("short", "long"):
        stored = await bench.store.read(name, KEY)
        assert stored is not None
        kept.append((stored.record.expires_at or 0) - (stored.record.finished_at or 0))
    assert kept == [10.0, 99.0]


# -- observers


async def test_an_observer_that_fails_does_not_undo_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: Event, /) -> None:
        raise RuntimeError("exporter is down")

    consumer = Consumer("c", MemoryStore(), observer=broken)
    bench = Bench()
    handled = await consumer.handle(Delivery(key="k"), bench.effect, CODEC)
    assert handled.outcome is Outcome.PROCESSED
    assert "an observer failed at HandlerRan" in caplog.text


async def test_every_delivery_is_observed_once_with_its_end() -> None:
    bench = Bench()
    await bench.handle()
    bench.effect.error = HandlerFailed()
    with pytest.raises(HandlerFailed):
        await bench.handle(key="other")
    ends = [e for e in bench.events if isinstance(e, DeliveryHandled | DeliveryFaulted)]
    assert [type(end) for end in ends] == [DeliveryHandled, DeliveryFaulted]


async def test_wired_store_is_what_the_consumer_sees() -> None:
    """The doubles themselves: a trip that is not counted would prove nothing."""
    bench = Bench()
    assert isinstance(bench.consumer._store, WiredStore)
    await bench.handle()
    assert bench.wire.trips == ["insert", "replace"]
