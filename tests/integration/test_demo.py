"""The demo shows what it promises: nothing lost and nothing doubled, and without the module doubled.

Every run is real: broker, storage, two host processes, the real worker and SDKs. Most of a run is
waiting for locks to end, so the protected and the unprotected one go side by side.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from local.services.node import MODULES

ROOT = Path(__file__).parents[2]
ORDERS = 24
RUN_SECONDS = 110.0

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not MODULES.is_dir() and not os.environ.get("CI"), reason="the emulators are not installed"
    ),
]


def started(*arguments: str) -> subprocess.Popen[str]:
    """The demo, as at a terminal of its own."""
    return subprocess.Popen(  # noqa: S603  this repository's own
        [sys.executable, "-m", "local.demo", "--orders", str(ORDERS), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(demo: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and narration."""
    try:
        output, narration = demo.communicate(timeout=RUN_SECONDS)
    finally:
        demo.kill()
    return demo.returncode, output, narration


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


Runs = tuple[tuple[int, str, str], tuple[int, str, str]]


def both(store: str) -> Runs:
    """A protected run and, with JSON for output, an unprotected one."""
    protected = started("--store", store)
    unprotected = started("--store", store, "--unprotected", "--json")
    return ended(protected), ended(unprotected)


@pytest.fixture(scope="module", params=["table", pytest.param("cosmos", marks=pytest.mark.slow)])
def runs(request: pytest.FixtureRequest) -> Runs:
    return both(request.param)


def test_nothing_is_lost_and_nothing_doubled(runs: Runs) -> None:
    (code, output, narration), _ = runs

    assert code == 0, output + narration
    *_, last = output.splitlines()
    found = re.fullmatch(
        rf"processed: {ORDERS}, duplicates: (\d+), mismatches: 3, lost: 0, doubled: 0,"
        rf" charged: {ORDERS}, charged_twice: 0",
        last,
    )
    assert found, last
    # one or more of each origin that reaches a consumer, four of the killed one
    assert int(found[1]) >= 11


def test_the_tables_show_every_origin_and_the_reason_of_a_mismatch(runs: Runs) -> None:
    (_, output, narration), _ = runs

    assert "consumer killed in the middle" in output, output + narration
    assert "PayloadMismatch" in output
    assert "changed: customer_id, lines" in output
    assert "PROBLEM" not in output


def test_without_the_module_the_same_traffic_has_effects_twice(runs: Runs) -> None:
    _, (code, output, narration) = runs

    assert code == 0, output + narration
    accounts: dict[str, Any] = json.loads(output)
    assert accounts["problems"] == []
    assert accounts["lost"] == 0
    # each kind of repeat but the one that the broker itself drops
    doubled = {row["origin"] for row in accounts["origins"] if row["doubled"]}
    spared = {row["origin"] for row in accounts["origins"]} - doubled
    assert spared == {"comes once", "re-sent within broker's window"}
    assert accounts["charged"] >= ORDERS
    assert accounts["charged_twice"] >= 3


def test_ctrl_c_ends_everything_it_started() -> None:
    demo = started()
    assert demo.stdout
    first_act = demo.stdout.readline()
    children = children_of(demo.pid)

    os.killpg(demo.pid, signal.SIGINT)
    code, _, narration = ended(demo)

    assert "2 consumers start" in first_act
    assert len(children) == 3, "Azurite and two consumers"
    assert code == 130
    assert "Stopped everything" in narration
    deadline = time.monotonic() + 5
    while (left := [pid for pid in children if Path(f"/proc/{pid}").exists()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert left == []


@pytest.mark.parametrize("wrong", [("--orders", "5"), ("--store", "paper")])
def test_what_it_cannot_do_is_told_before_anything_starts(wrong: tuple[str, str]) -> None:
    code, _, complaint = ended(started(*wrong))

    assert code == 2
    assert wrong[0] in complaint
