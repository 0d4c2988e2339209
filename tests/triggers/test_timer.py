"""The timer adapter: which slot a run is for, one effect for each, and none that is lost."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import azure.functions as func
import pytest
from azure.functions.timer import TimerRequest

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    MalformedContent,
    PermanentFailure,
    Policy,
    Status,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.testing import FakeClock
from shared.idempotency.triggers import timer
from shared.idempotency.triggers.timer import Slot
from tests.unit.doubles import Wire, WiredStore

HOURLY = "0 0 * * * *"
NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def status(following: datetime | None) -> dict[str, str]:
    """As the host writes it: .NET's ISO format, seven digits or none."""
    if following is None:
        return {}
    return {
        "Last": "2026-03-02T08:00:00.0123456+00:00",
        "Next": following.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        "LastUpdated": "2026-03-02T08:00:00.0123456+00:00",
    }


class Bench:
    """Two instances of one job, over one store; a clock that stands at a time of our choice."""

    def __init__(
        self, at: datetime, *, catch_up: int = 0, schedule: str = HOURLY, **options: Any
    ) -> None:
        self.clock = FakeClock(start=at.timestamp())
        self.wire = Wire()
        self.store = MemoryStore(self.clock)
        self.runs: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.seconds = 0.0
        policy = options.pop("policy", Policy(memory=0.0))

        def instance() -> Callable[[func.TimerRequest], Any]:
            consumer = Consumer(
                "close_day", WiredStore(self.store, self.wire), policy=policy, clock=self.clock
            )

            @timer.idempotent(
                consumer, schedule=schedule, catch_up=catch_up, clock=self.clock, **options
            )
            async def close_day(slot: Slot) -> None:
                await self.clock.sleep(self.seconds)
                if error := self.fails.get(slot.name):
                    raise error
                self.runs.append(slot.name)

            return close_day

        self.one, self.other = instance(), instance()

    async def run(self, following: datetime | None, *, past_due: bool = False) -> None:
        await self.clock.run(self.one(self.request(following, past_due)))

    @staticmethod
    def request(following: datetime | None, past_due: bool = False) -> func.TimerRequest:
        return TimerRequest(past_due=past_due, schedule_status=status(following))

    async def status(self, slot: str) -> Status | None:
        stored = await self.store.read("close_day", slot)
        return stored.record.status if stored else None


def named(*moments: datetime) -> list[str]:
    return [moment.isoformat() for moment in moments]


# ---------------------------------------------------------------- which slot


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=3), 59 * timedelta(minutes=1)])
async def test_a_scheduled_run_is_for_the_slot_that_its_status_calls_next(late: timedelta) -> None:
    bench = Bench(NINE + late)

    await bench.run(NINE)

    assert bench.runs == named(NINE)


async def test_a_run_that_fires_a_moment_early_is_for_the_slot_it_fires_for() -> None:
    bench = Bench(NINE - timedelta(milliseconds=200))

    await bench.run(NINE)

    assert bench.runs == named(NINE)


async def test_a_past_due_run_is_for_the_slot_that_was_missed_and_not_for_now() -> None:
    bench = Bench(NINE + timedelta(minutes=130))

    await bench.run(NINE, past_due=True)

    assert bench.runs == named(NINE)


async def test_a_manual_run_whose_status_names_a_slot_to_come_is_for_the_last_one() -> None:
    bench = Bench(NINE + timedelta(minutes=20))

    await bench.run(NINE + HOUR)

    assert bench.runs == named(NINE)


async def test_without_a_status_the_slot_is_computed_from_the_schedule() -> None:
    bench = Bench(NINE + timedelta(minutes=20))

    await bench.run(None)

    assert bench.runs == named(NINE)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "0001-01-01T00:00:00+00:00", "soon", None])
async def test_a_status_that_says_nothing_is_none(text: str | None) -> None:
    bench = Bench(NINE)

    await bench.clock.run(bench.one(TimerRequest(schedule_status={"Next": text})))

    assert bench.runs == named(NINE)


async def test_a_slot_in_another_offset_is_the_same_slot() -> None:
    bench = Bench(NINE)
    there = TimerRequest(schedule_status={"Next": "2026-03-02T10:00:00.0000000+01:00"})

    await bench.clock.run(bench.one(there))
    await bench.run(NINE)

    assert bench.runs == named(NINE)


# ---------------------------------------------------------------- one effect


async def test_scheduled_late_and_manual_runs_of_one_slot_have_one_effect() -> None:
    bench = Bench(NINE)

    await bench.run(NINE)
    await bench.clock.advance(120)
    await bench.run(NINE, past_due=True)
    await bench.run(NINE + HOUR)
    await bench.run(None)

    assert bench.runs == named(NINE)


async def test_two_instances_that_fire_at_once_have_one_effect_and_both_are_content() -> None:
    bench = Bench(NINE)
    bench.seconds = 5.0
    request = bench.request(NINE)

    await bench.clock.run(asyncio.gather(bench.one(request), bench.other(request)))

    assert bench.runs == named(NINE)


async def test_a_job_that_names_its_slots_by_the_day_does_a_day_once_whatever_the_schedule() -> (
    None
):
    def day(due: datetime) -> str:
        return f"{due:%Y-%m-%d}"

    bench = Bench(NINE, name_of=day)
    await bench.run(NINE)
    changed = Bench(NINE + 5 * HOUR, catch_up=2, schedule="0 30 * * * *", name_of=day)
    changed.store = bench.store

    await bench.clock.advance(5 * 3600)
    await bench.run(NINE + 5 * HOUR)
    await changed.run(None)

    assert bench.runs == ["2026-03-02"]
    assert changed.runs == ["2026-03-02"], "three slots of one day are one"


async def test_a_restart_whose_next_is_of_an_older_schedule_is_for_a_slot_of_this_one() -> None:
    bench = Bench(NINE + timedelta(minutes=30))

    await bench.run(NINE + timedelta(minutes=15), past_due=True)

    assert bench.runs == named(NINE)


# ---------------------------------------------------------------- nothing is lost


async def test_the_slots_that_were_missed_are_made_up_for_oldest_first() -> None:
    bench = Bench(NINE, catch_up=4)
    await bench.run(NINE)
    bench.runs.clear()
    await bench.clock.advance(3.5 * 3600)

    await bench.run(NINE + HOUR, past_due=True)

    assert bench.runs == named(*(NINE + hours * HOUR for hours in (1, 2, 3)))


async def test_a_slot_that_failed_runs_again_with_the_next_one() -> None:
    bench = Bench(NINE, catch_up=1)
    [nine, ten] = named(NINE, NINE + HOUR)
    bench.fails = {nine: TransientFailure("the provider is down")}
    with pytest.raises(TransientFailure):
        await bench.run(NINE)
    assert bench.runs == named(NINE - HOUR)

    bench.fails.clear()
    await bench.clock.advance(3600)
    await bench.run(NINE + HOUR)

    assert bench.runs == [*named(NINE - HOUR), nine, ten]


async def test_a_slot_that_fails_keeps_no_other_from_running_and_the_run_fails_for_the_host() -> (
    None
):
    bench = Bench(NINE, catch_up=2)
    [seven, eight, nine] = named(NINE - 2 * HOUR, NINE - HOUR, NINE)
    bench.fails = {seven: LookupError("no such account"), eight: TransientFailure("not now")}

    with pytest.raises(LookupError):
        await bench.run(NINE)

    assert bench.runs == [nine]


async def test_without_catch_up_a_run_is_for_its_own_slot_alone() -> None:
    bench = Bench(NINE + 3 * HOUR)

    await bench.run(NINE, past_due=True)

    assert bench.runs == named(NINE)


async def test_a_store_that_is_down_fails_the_run_and_nothing_ran() -> None:
    bench = Bench(NINE)
    bench.wire.down = True

    with pytest.raises(StoreUnavailable):
        await bench.run(NINE)

    assert bench.runs == []


async def test_while_another_attempt_is_in_flight_the_run_fails_for_the_host_to_repeat() -> None:
    bench = Bench(NINE, policy=Policy(memory=0.0))
    bench.seconds = 200.0
    first = asyncio.create_task(bench.one(bench.request(NINE)))
    await bench.clock.advance(1.0)

    with pytest.raises(TransientFailure, match="in flight"):
        await bench.clock.run(bench.other(bench.request(NINE)))
    await bench.clock.run(first)

    assert bench.runs == named(NINE)


async def test_a_run_that_looks_back_costs_one_read_for_each_slot_that_is_done() -> None:
    bench = Bench(NINE, catch_up=3)
    await bench.run(NINE)
    await bench.clock.advance(3600)
    bench.wire.trips.clear()

    await bench.run(NINE + HOUR)

    assert bench.wire.trips == ["read"] * 3 + ["insert", "replace"]


async def test_more_missed_slots_than_are_made_up_for_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE + 9 * HOUR, catch_up=1)

    await bench.run(NINE, past_due=True)

    assert bench.runs == named(NINE, NINE + 8 * HOUR, NINE + 9 * HOUR)
    assert (
        f"the slots between {NINE.isoformat()} and {(NINE + 8 * HOUR).isoformat()}" in caplog.text
    )


# ---------------------------------------------------------------- what is told


async def test_a_refusal_for_good_is_told_once_and_the_run_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE)
    bench.fails = {NINE.isoformat(): PermanentFailure("AccountClosed", "the bank says so")}

    await bench.run(NINE)
    await bench.run(NINE)

    assert await bench.status(NINE.isoformat()) is Status.FAILED
    [told] = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert "AccountClosed: the bank says so" in told


async def test_what_the_handler_rejects_is_told_and_the_run_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE)
    bench.fails = {NINE.isoformat(): MalformedContent("no such day", reason="NoSuchDay")}

    await bench.run(NINE)

    assert "NoSuchDay" in caplog.text


async def test_a_quarantined_slot_is_told_and_nothing_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE)
    await bench.run(NINE)
    stored = await bench.store.read("close_day", NINE.isoformat())
    assert stored
    await bench.store.replace(stored.record.replaced(status=Status.QUARANTINED), stored.etag)
    bench.runs.clear()

    await bench.run(NINE)

    assert bench.runs == []
    assert "quarantined" in caplog.text


async def test_a_slot_beyond_max_age_is_told_and_nothing_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE + 2 * HOUR, policy=Policy(memory=0.0, max_age=3600))

    await bench.run(NINE, past_due=True)

    assert bench.runs == []
    assert "too_old" in caplog.text


async def test_a_slot_whose_record_may_be_gone_does_not_run_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(NINE + timedelta(days=31))

    await bench.run(NINE, past_due=True)

    assert bench.runs == []
    assert "older than records are kept" in caplog.text


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"schedule": "00:05:00"}, "time span"),
        ({"schedule": "0 0 99 * * *"}, "hour"),
        ({"schedule": "0 0 0 31 2 *"}, "no such date"),
        ({"catch_up": -1}, "catch_up"),
        ({"schedule": "0 0 2 1 * *", "catch_up": 1}, "longer than the retention"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_run(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Bench(NINE, **options)


def test_a_handler_that_takes_no_slot_is_refused() -> None:
    protect = timer.idempotent(Consumer("close_day", MemoryStore()), schedule=HOURLY, catch_up=0)

    with pytest.raises(ConfigurationError, match="Slot"):

        @protect
        async def close_day(timer: func.TimerRequest) -> None: ...
