"""Given a broken rule about named steps, when all schedules are explored, then one shows it."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from shared.idempotency import Consumer, Effects, Store
from shared.idempotency.clock import Clock
from shared.idempotency.exploration import CONSUMER, Plan, Scenario
from shared.idempotency.exploration.scenario import StepsFactory
from shared.idempotency.exploration.scenarios import FIRST, RESENT, STEPS_POLICY
from shared.idempotency.protected import Protected
from shared.idempotency.records import Policy
from tests.exploration import step_mutants as mutants
from tests.exploration.test_mutants import assert_found

RECONCILE = Plan(policy="reconcile")
ONE_STEP = Plan(policy="reconcile", steps=("charge",))
RERUN = Plan(policy="rerun", key_retention=math.inf)
QUARANTINE = Plan(policy="quarantine")


def of(kind: type[Consumer]) -> StepsFactory:
    """A consumer of a mutant class."""

    def make(store: Store, clock: Clock, policy: Policy, effects: Effects) -> Protected:
        return kind(CONSUMER, store, policy=policy, effects=effects, clock=clock)

    return make


def above(mutant: Callable[[Store], Store]) -> StepsFactory:
    """A consumer that sees the store through a mutant."""

    def make(store: Store, clock: Clock, policy: Policy, effects: Effects) -> Protected:
        return Consumer(CONSUMER, mutant(store), policy=policy, effects=effects, clock=clock)

    return make


def mutant(name: str, plan: Plan, *, faults: int, found: str, **seams: Any) -> Any:
    """``faults``: how many it takes, at the least, to be found. ``found``: the promise that it breaks."""
    seams = {"messages": (FIRST,), **seams}
    scenario = Scenario(name=name, faults=2, plan=plan, policy=STEPS_POLICY, **seams)
    return pytest.param(scenario, faults, found, id=name.replace(" ", "-"))


MUTANTS = [
    mutant(
        "reconcile without settle",
        RECONCILE,
        consumer_of_steps=of(mutants.ActsBeforeItIsSettled),
        faults=1,
        found="is asked about 'charge' while a call of it may still land: its no would mean not yet",
    ),
    mutant(
        "rerun without settle",
        RERUN,
        consumer_of_steps=of(mutants.ActsBeforeItIsSettled),
        faults=1,
        found="'charge' is called again while an earlier call of it may still land",
    ),
    mutant(
        "quarantine without settle",
        QUARANTINE,
        consumer_of_steps=of(mutants.ActsBeforeItIsSettled),
        faults=1,
        found="becomes quarantined while a call of 'charge' may still land",
    ),
    mutant(
        "uncertain for no time",
        RECONCILE,
        consumer_of_steps=above(mutants.SettlesAtOnce),
        faults=1,
        found="uncertain for 0 s, but a call of 'charge' may still land in 25 s",
    ),
    mutant(
        "reconcile before the takeover write",
        RECONCILE,
        consumer_of_steps=of(mutants.AsksBeforeItTakesOver),
        faults=1,
        found="the provider is asked about 'charge' before the takeover is written",
    ),
    mutant(
        "open step forgotten on an exception",
        ONE_STEP,
        consumer_of_steps=above(mutants.ForgetsWhatIsOpen),
        faults=1,
        found="the record is deleted while a call of 'charge' may still land",
    ),
    mutant(
        "silence taken for no",
        ONE_STEP,
        consumer_of_steps=mutants.takes_silence_for_no,
        faults=1,
        found="the record is deleted while a call of 'charge' may still land",
    ),
    mutant(
        "recorded step called again",
        RERUN,
        consumer_of_steps=of(mutants.CallsAgain),
        faults=1,
        found="step 'reserve' is recorded as done, and is called again",
    ),
    mutant(
        "steps lost in a takeover",
        RERUN,
        consumer_of_steps=above(mutants.ForgetsItsSteps),
        faults=1,
        found="lost its step 'reserve'",
    ),
    mutant(
        "step without enough lease",
        RECONCILE,
        consumer_of_steps=of(mutants.StartsWithoutALease),
        faults=1,
        found="'charge' begins with -2.5 s of its lease left, but may take 14 s",
    ),
    mutant(
        "cannot tell taken for no",
        RECONCILE,
        consumer_of_steps=mutants.guesses,
        faults=2,
        found="'charge' happened twice: called by A#1, and by A#2",
    ),
    mutant(
        "quarantined without its steps",
        QUARANTINE,
        consumer_of_steps=above(mutants.QuarantinesWithoutSteps),
        faults=1,
        found="lost its step 'reserve'",
    ),
    mutant(
        "step recorded by a superseded attempt",
        RECONCILE,
        messages=(FIRST, RESENT),
        store=mutants.RecordsStepsUnfenced,
        fences=False,
        faults=1,
        found="was taken over",
    ),
    mutant(
        "provider that honours no keys, and rerun",
        Plan(policy="rerun", key_retention=0),
        faults=1,
        found="'charge' happened twice: called by A#1, and by A#2",
    ),
    mutant(
        "provider that forgets keys sooner than stated",
        Plan(policy="rerun", key_retention=50, stated_retention=100, steps=("charge",)),
        faults=1,
        found="'charge' happened twice: called by A#1, and by A#2",
    ),
    mutant(
        "rerun whose key is known when it begins, not when it lands",
        Plan(policy="rerun", key_retention=80, stated_retention=100, steps=("charge",)),
        faults=2,
        found="'charge' happened twice: called by A#1, and by A#2",
    ),
]


@pytest.mark.parametrize(("scenario", "faults", "promise"), MUTANTS)
def test_given_a_broken_rule_then_the_simplest_schedule_that_shows_it_is_found(
    scenario: Scenario, faults: int, promise: str
) -> None:
    assert_found(scenario, faults, promise)
