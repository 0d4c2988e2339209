"""What the explorer itself has to get right, or its silence would mean nothing."""

import asyncio
import io
import json
import re
import time
import uuid

import msgspec
import pytest

from shared.idempotency import ConfigurationError, Consumer, Record, Store, Stored
from shared.idempotency.clock import Clock
from shared.idempotency.exploration import (
    CONSUMER,
    Choice,
    Plan,
    Scenario,
    __main__,
    explore,
    in_steps,
    replay,
)
from shared.idempotency.exploration.scenarios import FIRST, RESENT
from shared.idempotency.protected import Protected
from shared.idempotency.records import Policy
from shared.idempotency.stores.memory import MemoryStore
from tests.exploration import mutants

ONE = Scenario(name="one delivery", messages=(FIRST,), faults=2)
DELIVER, CLAIM = Choice("deliver"), Choice("answer", 1)


def test_given_a_crash_then_nothing_of_the_process_runs_any_more() -> None:
    trace = replay(ONE, (DELIVER, CLAIM, Choice("crash", 0))).trace

    assert [line.operation for line in trace] == [
        "deliver",
        "insert in_progress, attempt 1",
        "process",
    ]
    assert "FAULT crash" in trace[-1].result


def test_given_a_crash_then_the_message_comes_back_and_the_record_is_still_claimed() -> None:
    replayed = replay(ONE, (DELIVER, CLAIM, Choice("crash", 0)))

    assert replayed.next == (Choice("deliver", 0), Choice("time"))
    assert replayed.record is not None
    assert replayed.record.status == "in_progress"


def test_given_no_answer_to_a_write_then_it_may_land_at_any_later_point() -> None:
    unanswered = (DELIVER, Choice("no answer", 1))

    replayed = replay(ONE, unanswered)
    landing = [choice for choice in replayed.next if choice.what == "land"]
    landed = replay(ONE, (*unanswered, *landing))

    assert len(landing) == 1
    assert replayed.record is None
    assert landed.record is not None


def test_given_a_late_request_that_can_have_no_effect_any_more_then_it_is_forgotten() -> None:
    choices = [DELIVER, CLAIM]
    choices.append(_next(choices, "proceed"))
    choices.append(_next(choices, "no answer"))
    late = _next(choices, "land")
    choices.append(_next(choices, "answer"))  # the same write again, which succeeds

    assert late not in replay(ONE, choices).next


def _next(choices: list[Choice], what: str, scenario: Scenario = ONE) -> Choice:
    return next(choice for choice in replay(scenario, choices).next if choice.what == what)


def _played(scenario: Scenario, *whats: str) -> list[Choice]:
    """The schedule in which these happen, one after the other."""
    choices: list[Choice] = []
    for what in whats:
        choices.append(_next(choices, what, scenario))
    return choices


PLAN = Plan(policy="reconcile", steps=("charge",))
STEP = in_steps("one step", PLAN, FIRST, faults=2)
IN_ITS_CALL = ("deliver", "answer", "proceed")


def test_given_a_crash_in_the_call_of_a_step_then_its_effect_may_come_later_or_never() -> None:
    choices = _played(STEP, *IN_ITS_CALL, "crash", "time")

    replayed = replay(STEP, choices)
    landed = replay(STEP, [*choices, _next(choices, "land", STEP)])

    assert replayed.now > STEP.policy.lease
    assert {"land", "deliver"} <= {choice.what for choice in replayed.next}
    assert "charge HAPPENS" in landed.trace[-2].result


def test_given_a_call_that_was_given_up_then_it_lands_within_settle_or_never() -> None:
    """The record is uncertain for `settle` and the allowance: then nothing can land any more."""
    choices = _played(STEP, *IN_ITS_CALL, "no answer", "answer")
    assert "land" in {choice.what for choice in replay(STEP, choices).next}

    choices.append(_next(choices, "time", STEP))

    replayed = replay(STEP, choices)
    assert replayed.now > PLAN.settle
    assert "land" not in {choice.what for choice in replayed.next}


def test_given_a_slow_call_then_it_is_cancelled_at_its_deadline_and_its_record_is_uncertain() -> (
    None
):
    choices = _played(STEP, *IN_ITS_CALL, "slow", "time", "answer")

    replayed = replay(STEP, choices)

    assert replayed.now == PLAN.deadline
    assert replayed.record is not None
    assert replayed.record.status == "uncertain"


def test_given_a_provider_that_cannot_tell_then_the_message_is_dead_lettered_with_the_reason() -> (
    None
):
    choices = _played(
        STEP, *IN_ITS_CALL, "no answer", "answer", "time", "deliver", *["answer"] * 2, "proceed"
    )
    choices.append(_next(choices, "cannot tell", STEP))
    choices += [_next(choices, "answer", STEP)]
    choices += [_next(choices, "proceed", STEP)]

    replayed = replay(STEP, choices)

    assert replayed.record is not None
    assert replayed.record.status == "quarantined"
    assert "dead-lettered: step 'charge'" in replayed.trace[-1].result


def test_given_a_stall_then_the_attempt_goes_on_unaware_after_its_lease() -> None:
    choices = [DELIVER, CLAIM, Choice("stall")]

    replayed = replay(ONE, [*choices, _next(choices, "proceed")])

    assert replayed.now > ONE.policy.lease
    assert replayed.trace[-1].operation == "effect"


def test_the_same_choices_give_the_same_trace() -> None:
    scenario = Scenario(
        name="mutant",
        messages=(FIRST, RESENT),
        faults=1,
        store=mutants.CompletesUnfenced,
        fences=False,
    )
    violation = explore(scenario).violations[0]

    first, second = (replay(scenario, violation.choices) for _ in range(2))

    assert first == second
    assert first.trace == violation.trace
    assert first.promise == violation.promise


def test_given_a_consumer_with_chance_of_its_own_then_it_is_refused() -> None:
    def make(store: Store, clock: Clock, policy: Policy) -> Protected:
        lease = 20 + time.perf_counter_ns() % 1_000_000 / 1e6
        return Consumer(
            CONSUMER,
            store,
            clock=clock,
            policy=msgspec.structs.replace(policy, lease=lease, heartbeat=9),
        )

    with pytest.raises(ConfigurationError, match="the same choices led to another state"):
        explore(Scenario(name="chance", messages=(FIRST, RESENT), faults=1, consumer=make))


def test_given_a_store_whose_calls_wait_then_it_is_refused() -> None:
    class Waits(MemoryStore):
        async def insert(self, record: Record) -> Stored | None:
            await asyncio.sleep(0)
            return await super().insert(record)

    with pytest.raises(ConfigurationError, match="calls never wait"):
        explore(Scenario(name="waits", messages=(FIRST,), store=Waits))


def test_an_exploration_leaves_identifiers_random_again() -> None:
    explore(ONE)

    assert uuid.uuid4() != uuid.uuid4()
    assert uuid.uuid4().version == 4


async def test_an_exploration_can_be_made_within_a_running_event_loop() -> None:
    found = explore(ONE)

    assert asyncio.get_running_loop().is_running()
    assert found.complete


def test_given_no_violation_then_the_command_ends_with_the_counts_and_zero() -> None:
    out = io.StringIO()

    code = __main__.main(["--quick", "--form", "inbox"], out)

    assert code == 0
    assert re.fullmatch(
        r"schedules explored: [1-9]\d*, violations: 0", out.getvalue().splitlines()[-1]
    )


def test_given_a_violation_then_the_command_shows_the_trace_and_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Scenario(name="broken", messages=(FIRST, RESENT), faults=2, store=mutants.ResultIsLost)
    monkeypatch.setattr(__main__, "DEFAULT", (broken,))
    out = io.StringIO()

    code = __main__.main([], out)

    assert code == 1
    assert "   1     0.0 s  A#1" in out.getvalue()
    assert out.getvalue().splitlines()[-1].endswith(", violations: 1")


def test_given_an_exploration_that_was_stopped_early_then_the_command_fails() -> None:
    assert __main__.main(["--deliveries", "3", "--seconds", "0.05"], io.StringIO()) == 1


def test_explorations_side_by_side_find_what_they_find_one_by_one() -> None:
    told: list[str] = []
    for jobs in ("1", "2"):
        out = io.StringIO()
        assert __main__.main(["--quick", "--form", "inbox", "--jobs", jobs], out) == 0
        told.append(out.getvalue().splitlines()[-1])

    assert told[0] == told[1]


def test_given_a_choice_of_nothing_then_the_command_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert __main__.main(["--deliveries", "7"], io.StringIO()) == 2
    assert "no exploration" in capsys.readouterr().err


def test_the_findings_are_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()

    __main__.main(["--quick", "--form", "inbox", "--faults", "1", "--json"], out)

    findings = json.loads(out.getvalue())
    assert [finding["faults"] for finding in findings] == [1, 1]
    assert all(finding["violations"] == [] for finding in findings)
