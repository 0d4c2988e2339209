"""The timer's decorator in the worker that Azure runs, and in a host whose clock fires it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from local.host.invoker import AppNotLoaded, Invoker
from local.host.process import ROOT, HostProcess
from tests.local.host.toy_app import ToyApp, eventually

IMPORTS = f"""
import sys
sys.path.insert(1, {str(ROOT)!r})
from shared.idempotency import Consumer, TransientFailure
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import timer
from shared.idempotency.triggers.timer import Slot

def protected(name, schedule, catch_up=0):
    return timer.idempotent(Consumer(name, MemoryStore()), schedule=schedule, catch_up=catch_up)
"""

CLOSE_DAY = (
    IMPORTS
    + """
@app.timer_trigger(arg_name="timer", schedule="0 0 2 * * *")
@protected("close_day", "0 0 2 * * *")
async def close_day(slot: Slot) -> str:
    effect("close_day", slot.name)
    return "done"
"""
)

EVERY_SECOND = (
    IMPORTS
    + """
runs = []

@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
@app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
@protected("tick", "* * * * * *", catch_up=120)
async def tick(slot: Slot) -> None:
    effect("tick", slot.name)
    runs.append(slot)
    if len(runs) == 100:
        raise TransientFailure("not now")
"""
)


def test_given_scheduled_late_and_manual_runs_in_the_worker_then_each_slot_has_one_effect(
    tmp_path: Path,
) -> None:
    app = ToyApp(tmp_path, CLOSE_DAY)
    missed = (datetime.now(UTC) - timedelta(days=3)).replace(hour=2, minute=0, second=0)
    with Invoker(tmp_path) as invoke:
        first = invoke("close_day", next_time=missed, past_due=True)
        again = invoke("close_day", next_time=missed, past_due=True)
        manual = invoke("close_day", next_time=datetime.now(UTC) + timedelta(days=1))
        unmonitored = invoke("close_day", monitored=False)

    assert all(each["succeeded"] for each in (first, again, manual, unmonitored))
    slots = [slot for [slot] in app.effects("close_day")]
    assert slots[0] == missed.replace(microsecond=0).isoformat()
    assert len(slots) == len(set(slots)) == 2


def test_given_a_schedule_that_is_none_then_the_app_does_not_load_and_says_why(
    tmp_path: Path,
) -> None:
    ToyApp(
        tmp_path, CLOSE_DAY.replace('protected("close_day", "0 0 2 * * *")', 'protected("c", "x")')
    )

    with pytest.raises(AppNotLoaded, match="has 1 fields"), Invoker(tmp_path):
        pass


def test_given_a_run_that_fails_then_the_host_repeats_it_and_the_slot_is_made_up_for(
    tmp_path: Path,
) -> None:
    app = ToyApp(tmp_path, EVERY_SECOND)
    with HostProcess(tmp_path, port=None) as host:
        eventually(lambda: len(slots := ran(app)) > len(set(slots)), within=60)
        assert "'tick' runs again in 1 s" in host.output

    slots = ran(app)
    assert slots.count(slots[99]) == 2, "the slot that failed"
    assert len(slots) == len(set(slots)) + 1, "and it alone"


def ran(app: ToyApp) -> list[str]:
    return [slot for [slot] in app.effects("tick")]
