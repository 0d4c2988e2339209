"""What a person does to a record: one fenced write, refused where it would do harm, and written down."""

import asyncio
from typing import Any

import pytest

from shared.idempotency import Outcome, Record, Status
from shared.idempotency.interventions import (
    ChangedMeanwhile,
    Reason,
    Refused,
    apply,
    audit_of,
    completed,
    quarantined,
    released,
)
from shared.idempotency.records import SCHEMA, Step
from shared.idempotency.scanning import Found, Placement
from shared.idempotency.stores.memory_scan import MemoryScan
from shared.idempotency.testing import a_record
from tests.unit.doubles import CODEC, KEY, SAME, Bench, HandlerFailed, a_delivery

WHY = Reason(who="ada", at=1_000.0, why="the provider says it did not happen")


def found(record: Record, placement: Placement = Placement.DEDICATED) -> Found:
    return Found(
        record=record, source="s", placement=placement, address=("p", "r"), etag="1", age=1.0
    )


def a_step(name: str, *, done: bool) -> Step:
    return Step(name=name, begun_at=1.0, deadline=2.0, done=done)


@pytest.mark.parametrize(
    "status", [Status.IN_PROGRESS, Status.UNCERTAIN, Status.QUARANTINED, Status.FAILED]
)
def test_released_keeps_finished_steps_forgets_open_ones_and_takes_back_the_refusal(
    status: Status,
) -> None:
    record = a_record(
        status=status,
        steps=(a_step("charge", done=True), a_step("email", done=False)),
        failure_reason="Refused",
        failure_description="no",
        finished_at=1.0,
        expires_at=2.0,
    )

    after = released(found(record), WHY)

    assert after.status is Status.RELEASED
    assert [step.name for step in after.steps] == ["charge"]
    assert (after.failure_reason, after.failure_description) == (None, None)
    assert (after.finished_at, after.expires_at) == (None, None)
    assert after.fingerprint == record.fingerprint
    assert after.owner != record.owner


def test_completed_keeps_the_result_and_is_kept_for_the_retention() -> None:
    record = a_record(status=Status.UNCERTAIN, steps=(a_step("charge", done=False),))

    after = completed(found(record), WHY, result='{"a": 1}', retention=60.0)

    assert (after.status, after.result, after.steps) == (Status.COMPLETED, '{"a": 1}', ())
    assert (after.finished_at, after.expires_at) == (1_000.0, 1_060.0)


def test_a_completed_marker_beside_the_data_still_never_expires() -> None:
    record = a_record(status=Status.QUARANTINED)

    after = completed(found(record, Placement.BESIDE_DATA), WHY, result=None, retention=60.0)

    assert after.expires_at is None


def test_quarantined_says_by_whom_and_why_and_never_expires() -> None:
    after = quarantined(found(a_record(status=Status.COMPLETED, expires_at=5.0)), WHY)

    assert after.status is Status.QUARANTINED
    assert after.expires_at is None
    assert after.failure_description == f"by ada: {WHY.why}"


def test_each_intervention_adds_to_the_audit_and_the_oldest_go() -> None:
    record = a_record()
    for n in range(15):
        record = quarantined(found(record), Reason(who="ada", at=float(n), why=f"q{n}"))
        record = released(found(record), Reason(who="bob", at=float(n), why=f"r{n}"))

    entries = audit_of(found(record))

    assert len(entries) == 20
    assert [entry.action for entry in entries[-2:]] == ["quarantine", "release"]
    assert (entries[-1].who, entries[-1].why, entries[-1].was) == ("bob", "r14", "quarantined")
    assert len(str(record.extra["audit"])) < 32_000


def test_the_audit_takes_any_text_and_still_fits_the_store() -> None:
    record = a_record()
    for _ in range(20):
        record = record.replaced(status=Status.IN_PROGRESS)
        long = Reason(who="\ud83d" + "w" * 5000, at=1.0, why="\U0001f600" * 5000)
        record = quarantined(found(record), long)

    text = str(record.extra["audit"])
    assert len(text.encode("utf-16-le")) // 2 < 32 * 1024
    assert 1 <= len(audit_of(found(record))) <= 20


def test_beside_the_data_the_audit_is_in_a_reserved_property() -> None:
    marker = found(a_record(status=Status.COMPLETED, extra={"audit": "the business's own"}),
                   Placement.BESIDE_DATA)  # fmt: skip

    after = quarantined(marker, WHY)

    assert after.extra["audit"] == "the business's own"
    assert "ada" in after.extra["idempotency_audit"]


def refusals() -> dict[str, Any]:
    newer = a_record(schema=SCHEMA + 1)
    done = a_record(status=Status.COMPLETED)
    beside = Placement.BESIDE_DATA
    return {
        "a marker is not released": lambda: released(found(done, beside), WHY, again=True),
        "done work is not released": lambda: released(found(done), WHY),
        "released is released": lambda: released(found(a_record(status=Status.RELEASED)), WHY),
        "done work is not completed": lambda: completed(
            found(done), WHY, result=None, retention=1.0
        ),
        "a result is JSON": lambda: completed(found(a_record()), WHY, result="{", retention=1.0),
        "quarantined is quarantined": lambda: quarantined(
            found(a_record(status=Status.QUARANTINED)), WHY
        ),
        "newer: release": lambda: released(found(newer), WHY),
        "newer: complete": lambda: completed(found(newer), WHY, result=None, retention=1.0),
        "newer: quarantine": lambda: quarantined(found(newer), WHY),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_would_do_harm_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        refusals()[name]()


def test_done_work_is_released_when_it_is_said_twice() -> None:
    after = released(found(a_record(status=Status.COMPLETED, result="1")), WHY, again=True)

    assert after.status is Status.RELEASED
    assert after.result is None


async def test_given_a_running_attempt_when_its_record_is_quarantined_then_the_attempt_is_fenced() -> (
    None
):
    bench = Bench()
    bench.effect.seconds = 60.0
    scan = MemoryScan(bench.store)
    running = bench.begin()
    await bench.clock.advance(1.0)
    seen = await scan.find("charge_payment", KEY)
    assert seen is not None

    await apply(scan, seen, quarantined(seen, WHY))
    handled = await bench.clock.run(running)

    assert handled.outcome is Outcome.QUARANTINED
    assert "the provider says" in handled.description
    assert bench.fenced()
    assert (await bench.record()).status is Status.QUARANTINED


async def test_given_a_quarantined_record_when_it_is_released_then_the_next_delivery_runs_again() -> (
    None
):
    bench = Bench()
    scan = MemoryScan(bench.store)
    await bench.store.insert(
        a_record(KEY, status=Status.QUARANTINED, fingerprint=SAME).replaced(
            consumer="charge_payment"
        )
    )
    seen = await scan.find("charge_payment", KEY)
    assert seen is not None

    await apply(scan, seen, released(seen, WHY))
    handled = await bench.handle()

    assert handled.outcome is Outcome.PROCESSED
    after = await scan.find("charge_payment", KEY)
    assert after is not None
    assert [entry.action for entry in audit_of(after)] == ["release"], "the work leaves it there"


async def test_given_a_released_record_when_its_attempt_fails_then_what_was_done_by_hand_is_still_known() -> (
    None
):
    bench = Bench()
    scan = MemoryScan(bench.store)
    record = a_record(KEY, status=Status.QUARANTINED, fingerprint=SAME, attempt=0)
    await bench.store.insert(record.replaced(consumer="charge_payment"))
    seen = await scan.find("charge_payment", KEY)
    assert seen is not None
    await apply(scan, seen, released(seen, WHY))

    bench.effect.error = HandlerFailed("no")
    with pytest.raises(HandlerFailed):
        await bench.handle()

    after = await scan.find("charge_payment", KEY)
    assert after is not None
    assert after.record.status is Status.RELEASED
    assert [entry.who for entry in audit_of(after)] == ["ada"]


async def test_given_a_record_completed_by_hand_then_a_duplicate_gets_the_result_given() -> None:
    bench = Bench()
    scan = MemoryScan(bench.store)
    await bench.store.insert(
        a_record(KEY, status=Status.UNCERTAIN, fingerprint=SAME).replaced(consumer="charge_payment")
    )
    seen = await scan.find("charge_payment", KEY)
    assert seen is not None

    await apply(scan, seen, completed(seen, WHY, result='"by hand"', retention=60.0))
    handled = await bench.consumer.handle(a_delivery(), bench.effect, CODEC)

    assert (handled.outcome, handled.result) == (Outcome.DUPLICATE, "by hand")
    assert bench.effect.begun == 0


async def test_given_two_people_at_once_then_one_is_told_that_it_changed() -> None:
    bench = Bench()
    scan = MemoryScan(bench.store)
    await bench.store.insert(a_record(KEY).replaced(consumer="charge_payment"))
    seen = await scan.find("charge_payment", KEY)
    assert seen is not None

    results = await asyncio.gather(
        apply(scan, seen, quarantined(seen, WHY)),
        apply(scan, seen, released(seen, WHY)),
        return_exceptions=True,
    )

    assert sum(isinstance(each, ChangedMeanwhile) for each in results) == 1
