"""Given a broken rule, when all schedules are explored, then one shows it, and its trace tells how."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.idempotency import Consumer, Inbox, Store
from shared.idempotency.clock import Clock
from shared.idempotency.exploration import CONSUMER, Scenario, replay, simplest
from shared.idempotency.exploration.scenario import ConsumerFactory, InboxFactory
from shared.idempotency.exploration.scenarios import FIRST, OTHER, RESENT
from shared.idempotency.inbox_store import InboxStore
from shared.idempotency.protected import Protected
from shared.idempotency.records import Policy
from tests.exploration import mutants

TWO = (FIRST, RESENT)


def above(mutant: Callable[[Store], Store]) -> ConsumerFactory:
    """A consumer that sees the store through a mutant."""

    def make(store: Store, clock: Clock, policy: Policy) -> Protected:
        return Consumer(CONSUMER, mutant(store), policy=policy, clock=clock)

    return make


def above_inbox(mutant: Callable[[InboxStore], InboxStore]) -> InboxFactory:
    def make(store: InboxStore, clock: Clock, policy: Policy) -> Protected:
        return Inbox(CONSUMER, mutant(store), policy=policy, clock=clock)

    return make


def mutant(name: str, *, faults: int, found: str, **seams: Any) -> Any:
    """``faults``: how many it takes, at the least, to be found. ``found``: the promise that it breaks."""
    scenario = Scenario(name=name, faults=2, **{"messages": TWO, **seams})
    return pytest.param(scenario, faults, found, id=name.replace(" ", "-"))


MUTANTS = [
    mutant(
        "no fencing on complete",
        store=mutants.CompletesUnfenced,
        fences=False,
        faults=1,
        found="a superseded attempt wrote completed over its successor's record",
    ),
    mutant(
        "check then insert",
        store=mutants.Overwrites,
        consumer=above(mutants.ChecksThenInserts),
        fences=False,
        faults=0,
        found="a record was taken over 32 s before its lease ended",
    ),
    mutant(
        "unconditional delete",
        store=mutants.DeletesUnconditionally,
        fences=False,
        faults=1,
        found="a superseded attempt deleted its successor's record",
    ),
    mutant(
        "heartbeat past the deadline",
        consumer=mutants.renews_past_its_deadline,
        faults=1,
        found="goes on renewing its lease past its deadline",
    ),
    mutant(
        "a lease that never ends",
        store=mutants.LeaseNeverEnds,
        faults=1,
        found="for ever",
    ),
    mutant(
        "a lease that nobody honours",
        store=mutants.LeaseIsIgnored,
        faults=0,
        found="a record was taken over 32 s before its lease ended",
    ),
    mutant(
        "own write taken for a stranger's",
        consumer=above(mutants.TakesItselfForAStranger),
        messages=(FIRST,),
        faults=2,
        found="whose attempt neither crashed, nor lost its lease, nor failed",
    ),
    mutant(
        "acknowledged before completion",
        consumer=above(mutants.AnswersBeforeItIsWritten),
        faults=0,
        found="processed without a completed record: there is one that is in_progress",
    ),
    mutant(
        "content ignored",
        store=mutants.ContentIsIgnored,
        messages=(FIRST, OTHER),
        faults=0,
        found="duplicate, but the record is of other content",
    ),
    mutant(
        "result lost",
        store=mutants.ResultIsLost,
        faults=0,
        found="duplicate with None, recorded is",
    ),
    mutant(
        "inbox that overwrites its marker",
        form="inbox",
        inbox_store=mutants.MarkerIsOverwritten,
        faults=0,
        found="the transaction was committed twice",
    ),
    mutant(
        "inbox in two transactions",
        form="inbox",
        inbox=above_inbox(mutants.WritesInTwoTransactions),
        faults=0,
        found="a committed transaction left 1 documents",
    ),
]


def assert_found(scenario: Scenario, faults: int, promise: str) -> None:
    """Some schedule with so many faults, and none with fewer, breaks the promise; its trace says so."""
    found = simplest(scenario)

    assert [promise in violation.promise for violation in found.violations] == [True]
    assert found.faults == faults
    violation = found.violations[0]
    told = str(violation).splitlines()
    assert "VIOLATION" in told[-1]
    assert promise in told[-1]
    assert sum("FAULT" in line for line in told) == faults
    assert violation.trace == replay(scenario, violation.choices).trace


@pytest.mark.parametrize(("scenario", "faults", "promise"), MUTANTS)
def test_given_a_broken_rule_then_the_simplest_schedule_that_shows_it_is_found(
    scenario: Scenario, faults: int, promise: str
) -> None:
    assert_found(scenario, faults, promise)
