"""The decision table, row by row, in its order of precedence."""

import itertools
from typing import Any

import pytest

from shared.idempotency import Record, Status, Stored
from shared.idempotency.decision import CLOCK_ALLOWANCE, Action, decide
from shared.idempotency.records import SCHEMA
from shared.idempotency.testing import a_record

SAME, OTHER = "json1:aa", "json1:bb"
LEASE = 30.0
OVER = LEASE + CLOCK_ALLOWANCE + 0.1


def held(status: Status, *, age: float = 0.0, owner: str = "another", **fields: Any) -> Stored:
    record = a_record(status=status, owner=owner, fingerprint=SAME, lease=LEASE, **fields)
    return Stored(record=record, etag="1", age=age)


def action(stored: Stored | None, fingerprint: str | None = SAME) -> Action:
    return decide(stored, owner="me", fingerprint=fingerprint).action


def test_row_1_nothing_is_claimed() -> None:
    assert action(None) is Action.CLAIM


@pytest.mark.parametrize("content", [SAME, OTHER])
def test_row_2_our_own_unfinished_record_is_proceeded_with(content: str) -> None:
    assert action(held(Status.IN_PROGRESS, owner="me"), content) is Action.PROCEED
    assert action(held(Status.IN_PROGRESS, owner="me", age=OVER), content) is Action.PROCEED


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_row_2b_our_own_finished_record_is_confirmed_not_a_duplicate(status: Status) -> None:
    assert action(held(status, owner="me")) is Action.CONFIRM


@pytest.mark.parametrize("content", [SAME, OTHER])
@pytest.mark.parametrize("owner", ["me", "another"])
def test_row_3_quarantined_stays_so_whatever_the_content_and_whoever_owned_it(
    content: str, owner: str
) -> None:
    assert action(held(Status.QUARANTINED, owner=owner), content) is Action.QUARANTINED
    assert action(held(Status.QUARANTINED, age=1e9), content) is Action.QUARANTINED


@pytest.mark.parametrize("content", [SAME, OTHER])
def test_row_4_a_living_lease_is_waited_for_also_when_the_content_differs(content: str) -> None:
    """⚠ The other attempt may still release: a mismatch now would dead-letter a good message."""
    decision = decide(held(Status.IN_PROGRESS, age=12.0), owner="me", fingerprint=content)
    assert decision.action is Action.WAIT
    assert decision.wait == pytest.approx(LEASE + CLOCK_ALLOWANCE - 12.0)


@pytest.mark.parametrize("content", [SAME, OTHER])
def test_row_4_an_uncertain_effect_is_waited_for_until_it_has_settled(content: str) -> None:
    """⚠ Asked before, the provider's "no" means "cannot tell"."""
    stored = held(Status.UNCERTAIN, settle=60.0, age=59.0)
    decision = decide(stored, owner="me", fingerprint=content)
    assert decision.action is Action.WAIT
    assert decision.wait == pytest.approx(60.0 + CLOCK_ALLOWANCE - 59.0)


def test_row_4_a_lease_is_honoured_beyond_its_end_for_time_stamps_of_whole_seconds() -> None:
    assert action(held(Status.IN_PROGRESS, age=LEASE + CLOCK_ALLOWANCE - 0.01)) is Action.WAIT
    assert action(held(Status.IN_PROGRESS, age=LEASE + CLOCK_ALLOWANCE)) is Action.TAKE_OVER


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
@pytest.mark.parametrize("age", [0.0, 1e9])
def test_row_5_a_finished_record_is_a_duplicate_however_old(status: Status, age: float) -> None:
    assert action(held(status, age=age)) is Action.DUPLICATE
    assert action(held(status, age=age), None) is Action.DUPLICATE
    assert action(held(status, age=age), "raw1:cc") is Action.DUPLICATE


@pytest.mark.parametrize(
    "stored",
    [
        held(Status.COMPLETED),
        held(Status.FAILED),
        held(Status.UNCERTAIN, age=OVER),
        held(Status.RELEASED),
        held(Status.IN_PROGRESS, age=OVER),
    ],
    ids=lambda stored: stored.record.status,
)
def test_row_6_other_content_is_a_mismatch_also_of_a_crashed_attempt(stored: Stored) -> None:
    """A crashed attempt may have had effects: its key cannot be used for something else."""
    assert action(stored, OTHER) is Action.MISMATCH


def test_row_7_an_attempt_whose_lease_is_over_is_taken_over() -> None:
    assert action(held(Status.IN_PROGRESS, age=OVER)) is Action.TAKE_OVER


def test_row_7_an_uncertain_effect_that_has_settled_is_taken_over() -> None:
    assert action(held(Status.UNCERTAIN, settle=5.0, age=7.1)) is Action.TAKE_OVER


@pytest.mark.parametrize("age", [0.0, 1e9])
def test_row_8_a_released_record_is_continued_at_once(age: float) -> None:
    assert action(held(Status.RELEASED, age=age)) is Action.CONTINUE


@pytest.mark.parametrize("status", [Status.IN_PROGRESS, Status.UNCERTAIN, Status.RELEASED])
def test_an_older_deploy_never_claims_an_unfinished_record_of_a_newer_schema(
    status: Status,
) -> None:
    decision = decide(held(status, age=1e9, schema=SCHEMA + 1), owner="me", fingerprint=SAME)
    assert decision.action is Action.WAIT
    assert decision.wait > 0


def test_a_finished_record_of_a_newer_schema_is_still_a_duplicate() -> None:
    assert action(held(Status.COMPLETED, schema=SCHEMA + 1)) is Action.DUPLICATE


def test_every_combination_has_a_decision_and_only_free_records_are_claimed() -> None:
    """The table is complete, and no row lets a record be claimed that belongs to somebody."""
    for status, age, owner, content, schema in itertools.product(
        Status, (0.0, 10.0, OVER, 1e9), ("me", "another"), (SAME, OTHER, None), (SCHEMA, SCHEMA + 1)
    ):
        stored = held(status, age=age, owner=owner, settle=20.0, schema=schema)
        taken = action(stored, content)
        if taken in (Action.TAKE_OVER, Action.CONTINUE):
            assert not status.is_finished
            assert status is not Status.QUARANTINED
            assert content != OTHER
            assert schema == SCHEMA
            assert (
                age >= OVER
                or status is Status.RELEASED
                or (status is Status.UNCERTAIN and age > 20)
            )
        assert taken is not Action.CLAIM


def test_the_decision_reads_nothing_but_its_arguments() -> None:
    stored = held(Status.IN_PROGRESS, age=12.0)
    before: Record = stored.record.replaced()
    assert decide(stored, owner="me", fingerprint=OTHER) == decide(
        stored, owner="me", fingerprint=OTHER
    )
    assert stored.record == before


@pytest.mark.parametrize("content", [SAME, OTHER])
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_row_4b_only_a_reusable_key_is_claimed_in_place_of_its_expired_record(
    status: Status, content: str
) -> None:
    kept_for: dict[str, Any] = {"finished_at": 1000.0, "expires_at": 1000.0 + 60.0}
    expired = held(status, age=60.0 + CLOCK_ALLOWANCE + 0.1, **kept_for)
    young = held(status, age=60.0 + CLOCK_ALLOWANCE, **kept_for)

    def reused(stored: Stored) -> Action:
        return decide(stored, owner="me", fingerprint=content, reusable=True).action

    assert reused(expired) is Action.CLAIM
    assert reused(young) is not Action.CLAIM
    assert action(expired, content) is not Action.CLAIM
    assert reused(held(status, age=1e9)) is not Action.CLAIM, "it was never to expire"


def test_row_4b_a_newer_release_s_record_is_not_claimed() -> None:
    kept_for: dict[str, Any] = {"finished_at": 1000.0, "expires_at": 1060.0}
    newer = held(Status.COMPLETED, age=1e6, schema=SCHEMA + 1, **kept_for)
    assert decide(newer, owner="me", fingerprint=SAME, reusable=True).action is Action.DUPLICATE
