"""Given two deliveries of one key and any faults, then every promise holds in every schedule."""

import pytest

from shared.idempotency.exploration import QUICK, Scenario, explore, in_steps
from shared.idempotency.exploration.scenarios import (
    FIRST,
    FORGOTTEN,
    ONE_STEP,
    OTHER,
    RECONCILE,
    RESENT,
    SIDE_BY_SIDE,
    TWICE,
    declared_effect,
)

_names = [scenario.name.replace(" ", "-") for scenario in QUICK]


@pytest.mark.parametrize("scenario", QUICK, ids=_names)
def test_every_promise_holds_in_every_schedule(scenario: Scenario) -> None:
    found = explore(scenario)

    assert not found.violations, "\n".join(map(str, found.violations))
    assert found.complete
    assert found.finished > 0


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(name="alone", messages=(FIRST,), faults=2),
        Scenario(name="two-deliveries", messages=(FIRST, RESENT), faults=1),
        Scenario(name="two-contents", messages=(FIRST, OTHER), faults=1),
        Scenario(name="three-deliveries", messages=(FIRST, RESENT, TWICE), faults=0),
        Scenario(name="declared-effect", messages=(FIRST,), faults=1, consumer=declared_effect),
        Scenario(name="inbox", messages=(FIRST, RESENT), faults=1, form="inbox"),
        in_steps("steps", RECONCILE, FIRST, faults=1),
        in_steps("step,-two-deliveries", ONE_STEP, FIRST, RESENT, faults=0),
        in_steps("key-forgotten", FORGOTTEN, FIRST, faults=1),
        in_steps("steps-side-by-side", SIDE_BY_SIDE, FIRST, faults=1),
    ],
    ids=lambda scenario: scenario.name,
)
def test_merging_equal_states_leaves_out_no_state(scenario: Scenario) -> None:
    merged = explore(scenario)
    all_of_them = explore(scenario, merge=False)

    assert merged.complete
    assert all_of_them.complete
    assert all_of_them.merged == 0 < merged.merged
    assert all_of_them.states == merged.states


@pytest.mark.slow
def test_merging_equal_states_leaves_out_no_state_where_what_was_taken_over_is_remembered() -> None:
    """Two takeovers of one record differ only by what kind of record it was: one waits, one does not."""
    test_merging_equal_states_leaves_out_no_state(in_steps("two faults", ONE_STEP, FIRST, faults=2))
