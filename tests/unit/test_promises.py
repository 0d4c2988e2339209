"""Where each promise is tested that came out of a schedule in which it was once broken.

In docstrings such a test is marked with a warning sign. The tables below name, for every promise, tests
that fail when it is broken; here it is checked that they are there, and that none is left out.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SIGN = "\N{WARNING SIGN}"

PROMISES = {
    "other content waits too while an attempt is in flight: that one may still release": (
        "unit/test_decision.py::test_row_4_a_living_lease_is_waited_for_also_when_the_content_differs",
        "unit/test_consumer_in_flight.py::test_given_other_content_in_flight_then_it_waits_before_it_is_a_mismatch",
        "unit/test_takeover.py::test_an_uncertain_record_that_is_not_settled_is_in_flight_whatever_the_content",
    ),
    "an attempt is not fenced by its own heartbeat": (
        "unit/test_consumer_in_flight.py::test_ones_own_heartbeat_is_no_stranger",
    ),
    "the marker's partition follows from the key, and nothing is written elsewhere": (
        "unit/test_inbox_markers.py::test_the_partition_is_a_function_of_the_key_and_writes_go_nowhere_else",
        "unit/test_inbox_markers.py::test_a_key_without_a_partition_is_refused_before_its_handler_runs",
        "contract/test_what_is_written.py::test_a_table_document_cannot_choose_its_own_place",
        "contract/test_what_is_written.py::test_a_cosmos_document_cannot_choose_its_own_place",
    ),
    "one consumer's marker does not stand for another's": (
        "unit/test_inbox_markers.py::test_each_consumer_has_a_marker_of_its_own_in_the_partition",
        "unit/test_inbox.py::test_a_marker_of_another_consumer_does_not_suppress_this_one_silently",
    ),
    "an operator's forced re-send is not answered from this process's memory": (
        "unit/test_consumer_outcomes.py::test_an_operators_forced_resend_is_not_answered_from_memory",
        "unit/test_round_trips.py::TestInbox::test_an_operators_forced_resend_goes_to_the_store_however_recent_the_marker",
    ),
    "what must come back later is paced, not abandoned at once": (
        "integration/test_outage.py::test_two_minutes_without_a_store_dead_letter_nothing_and_lose_nothing",
        "triggers/test_service_bus_settlement.py::test_a_store_outage_is_raised_only_where_the_host_completes_by_itself",
        "triggers/test_settlement_table.py::test_while_the_store_is_down_the_message_comes_back_and_nothing_runs",
        "triggers/test_pacing.py::test_holds_alone_outlast_an_outage_where_a_message_can_only_be_abandoned",
        "triggers/test_pacing.py::test_a_storage_queue_s_few_deliveries_outlast_an_outage",
    ),
    "the heartbeat of a hung handler ends at its deadline": (
        "unit/test_consumer_in_flight.py::test_the_heartbeat_stops_at_the_deadline_and_a_hung_handler_is_cancelled",
        "exploration/test_mutants.py::test_given_a_broken_rule_then_the_simplest_schedule_that_shows_it_is_found",
    ),
    "a step begins only under a lease that outlives its deadline": (
        "unit/test_steps.py::test_a_step_does_not_begin_when_the_lease_cannot_be_made_to_cover_it",
        "unit/test_steps.py::test_a_step_renews_a_lease_that_would_end_before_its_deadline",
        "unit/test_fencing.py::test_the_lease_counts_from_before_the_renewal_was_sent",
        "exploration/test_step_mutants.py::test_given_a_broken_rule_then_the_simplest_schedule_that_shows_it_is_found",
    ),
    "a rerun's key is known until its call has landed": (
        "unit/test_takeover.py::test_the_key_must_be_known_until_the_call_that_relies_on_it_has_landed",
        "unit/test_takeover.py::test_given_a_lease_is_renewed_before_a_rerun_then_its_key_must_be_known_after_that",
    ),
    "no policy acts before a call of the earlier attempt must have landed": (
        "unit/test_takeover.py::test_the_takeover_is_written_and_settled_before_the_provider_is_asked",
        "unit/test_decision.py::test_row_4_an_uncertain_effect_is_waited_for_until_it_has_settled",
        "unit/test_steps.py::test_settle_must_not_be_less_than_a_steps_deadline",
        "exploration/test_step_mutants.py::test_given_a_broken_rule_then_the_simplest_schedule_that_shows_it_is_found",
    ),
    "after a takeover's policy has acted, the handler goes on with the rest": (
        "unit/test_takeover.py::test_after_a_step_in_doubt_the_handler_goes_on_with_the_rest",
    ),
    "a handler that fails after recorded steps keeps them": (
        "unit/test_consumer_outcomes.py::test_given_recorded_steps_when_the_handler_raises_then_they_are_kept",
        "unit/test_steps.py::test_the_last_step_is_kept_when_the_handler_fails_after_it",
        "unit/test_steps.py::test_a_refusal_for_good_after_a_recorded_step_keeps_the_step",
    ),
    "a step in doubt outranks every other way to end": (
        "unit/test_steps.py::test_an_uncertain_step_outranks_however_the_handler_ends",
        "unit/test_steps.py::test_a_shutdown_in_the_middle_of_a_call_leaves_the_record_uncertain",
        "unit/test_steps.py::test_the_handlers_deadline_in_the_middle_of_a_call_leaves_the_record_uncertain",
    ),
    "a handler with an output binding is refused": (
        "triggers/test_protecting.py::test_a_handler_with_an_output_binding_is_refused",
        "triggers/test_protecting.py::test_a_parameter_that_could_be_an_output_binding_is_refused",
    ),
    "an account with several write regions is refused": (
        "contract/test_throttling.py::test_given_an_account_with_several_write_regions_then_it_is_refused",
    ),
    "a duplicate of a failure is set aside with the recorded reason, never acknowledged": (
        "triggers/test_settlement_table.py::test_a_duplicate_of_a_failure_is_set_aside_with_the_recorded_reason_never_acknowledged",
    ),
    "what is quarantined or too old is set aside with its reason": (
        "triggers/test_settlement_table.py::test_a_quarantined_key_is_set_aside_and_nothing_runs",
        "triggers/test_settlement_table.py::test_a_message_beyond_max_age_is_set_aside_and_nothing_runs",
    ),
    "only finished records expire": (
        "contract/test_what_is_written.py::test_cosmos_items_expire_only_when_they_are_finished",
        "contract/test_what_is_written.py::test_an_entity_that_is_a_marker_never_expires",
        "contract/test_purging.py::test_given_expired_records_then_they_go_and_all_others_stay",
    ),
}

ELSEWHERE = {
    19: (  # no cleanup
        "contract/test_what_is_written.py::test_records_of_a_consumer_spread_over_its_buckets",
        "contract/test_what_is_written.py::test_cosmos_items_expire_only_when_they_are_finished",
        "contract/test_purging.py::test_given_a_bounded_run_then_the_next_goes_on_where_it_stopped",
        "contract/test_purging.py::test_given_records_that_change_between_look_and_delete_then_they_alone_stay",
    ),
    25: (  # metadata of a batch at the wrong body
        "triggers/test_protecting.py::test_a_handler_of_batches_or_of_plain_text_is_refused",
        "local/host/test_worker.py::test_in_a_batch_the_ids_shift_when_one_is_missing_as_they_do_in_azure",
    ),
}
"""Kinds of fault of other libraries, of 1 to 26, that are not tested in test_peer_faults.py."""


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The tests of a file by their ids, without parameters."""
    name = path.relative_to(TESTS).as_posix()
    tree = ast.parse(path.read_text())
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for function in inner:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if function.name.startswith("test_"):
                yield f"{name}::{owner}{function.name}", function


@functools.cache
def all_tests() -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {id_: node for path in TESTS.rglob("test_*.py") for id_, node in functions(path)}


TOLD = {**PROMISES, **{f"kind of fault {n}": tests for n, tests in ELSEWHERE.items()}}


@pytest.mark.parametrize("promise", TOLD)
def test_each_promise_has_its_tests(promise: str) -> None:
    there = all_tests()
    assert [test for test in TOLD[promise] if test not in there] == []


@pytest.mark.parametrize("promise", TOLD)
def test_none_of_them_is_skipped_or_expected_to_fail(promise: str) -> None:
    there = all_tests()
    marks = [ast.unparse(mark) for test in TOLD[promise] for mark in there[test].decorator_list]
    assert [mark for mark in marks if re.search(r"\b(skip|skipif|xfail)\b", mark)] == []


def test_every_test_that_bears_the_sign_is_in_the_table() -> None:
    told = {test for tests in PROMISES.values() for test in tests}
    signed = {id_ for id_, node in all_tests().items() if SIGN in (ast.get_docstring(node) or "")}
    assert signed - told == set()
    assert len(signed) > 5


def test_every_kind_of_fault_of_other_libraries_has_a_test() -> None:
    numbers = re.findall(r"def test_(\d\d)_", (TESTS / "unit" / "test_peer_faults.py").read_text())
    assert {*map(int, numbers), *ELSEWHERE} == set(range(1, 27))
