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
from shared.idempotency.consumer import Protected
from shared.idempotency.exploration import CONSUMER, Choice, Scenario, __main__, explore, replay
from shared.idempotency.exploration.scenarios import FIRST, RESENT
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


def _next(choices: list[Choice], what: str) -> Choice:
    return next(choice for choice in replay(ONE, choices).next if choice.what == what)


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
