"""Policies refuse numbers that do not hang together; records survive being written down."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import ConfigurationError, Delivery, Policy, Record, Status
from shared.idempotency.decision import Action, decide
from shared.idempotency.documents import RESERVED, from_document, to_document
from shared.idempotency.records import SCHEMA, Step, Stored
from shared.idempotency.testing import a_record


def test_the_default_policy_hangs_together() -> None:
    policy = Policy()
    assert (policy.lease, policy.heartbeat, policy.wait) == (30.0, 10.0, 45.0)


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"lease": 60.0, "wait": 45.0}, r"lease \(60 s\) must not exceed wait \(45 s\)"),
        ({"heartbeat": 16.0}, r"heartbeat \(16 s\) must be at most half the lease \(30 s\)"),
        ({"deadline": 406.0}, r"deadline \(406 s\) must not exceed .* = 405 s"),
        (
            {"deadline": 46.0, "max_delivery_count": 2},
            r"deadline \(46 s\) must not exceed .* = 45 s",
        ),
        ({"max_delivery_count": 1}, "deadline"),
        ({"max_age": 20.0, "retention": 10.0}, r"max_age \(20 s\) must be above 0 and not exceed"),
        ({"max_age": 0.0}, "max_age"),
        ({"lease": 0.0}, "lease"),
        ({"lease": -1.0}, "lease"),
        ({"heartbeat": 0.0}, "heartbeat"),
        ({"deadline": float("inf")}, "deadline"),
        ({"deadline": float("nan")}, "deadline"),
        ({"retention": -5.0}, "retention"),
        ({"wait": -1.0}, "wait"),
        ({"waiting_slots": -1}, "waiting_slots"),
        ({"memory": -1.0}, "memory"),
        ({"max_result_bytes": -1}, "max_result_bytes"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused_by_name(
    numbers: dict[str, float], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Policy(**numbers)  # type: ignore[arg-type]


def test_a_delivery_never_shows_its_body() -> None:
    delivery = Delivery(key="k", body=b'{"card":"4111"}')
    assert "4111" not in repr(delivery)
    assert "4111" not in f"{delivery}"


def test_statuses_that_are_finished() -> None:
    assert {status for status in Status if status.is_finished} == {Status.COMPLETED, Status.FAILED}


def read_back(record: Record, prefix: str = "", **properties: object) -> Record:
    document = json.loads(json.dumps({**to_document(record, prefix=prefix), **properties}))
    return from_document(document, consumer=record.consumer, key=record.key, prefix=prefix)


@pytest.mark.parametrize("prefix", ["", RESERVED])
def test_a_record_survives_being_written_down(prefix: str) -> None:
    record = a_record(
        "k\ud800",
        status=Status.RELEASED,
        attempt=2,
        first_sequence_number=2**63 - 1,
        steps=(Step(name="s", begun_at=1.5, deadline=2.5, done=True, result="null"),),
        result="null",
    )
    assert read_back(record, prefix) == record


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).map(lambda name: "x_" + name),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=3),
        max_size=5,
    )
)
def test_fields_that_this_release_does_not_know_are_carried_over(extra: dict[str, object]) -> None:
    record = a_record(schema=SCHEMA + 3, extra=extra)
    again = read_back(record.replaced(attempt=2))
    assert again.extra == extra
    assert again.schema == SCHEMA + 3


def test_a_document_is_flat_so_that_any_store_can_hold_it() -> None:
    document = to_document(a_record(steps=(Step(name="s", begun_at=1.0, deadline=2.0),)))
    assert all(isinstance(value, str | int | float) for value in document.values())


def test_business_properties_beside_a_marker_are_kept_apart() -> None:
    record = a_record(extra={"status": "placed", "owner": "a customer"})
    document = to_document(record, prefix=RESERVED)
    assert document["status"] == "placed"
    assert read_back(record, RESERVED) == record


def decided(record: Record) -> Action:
    return decide(Stored(record=record, etag="1", age=1e9), owner="me", fingerprint=None).action


@pytest.mark.parametrize(
    "strange", [{"status": "reviewing"}, {"steps": '[{"step":1}]'}, {"attempt": "two"}]
)
def test_an_unreadable_record_of_a_newer_schema_is_waited_for(strange: dict[str, str]) -> None:
    record = read_back(a_record(schema=SCHEMA + 1), **strange)
    assert decided(record) is Action.WAIT


@pytest.mark.parametrize("strange", [{"status": "?"}, {"steps": "{"}, {"lease": "long"}])
def test_an_unreadable_record_is_quarantined_never_taken_for_absent(
    strange: dict[str, str],
) -> None:
    record = read_back(a_record(), **strange)
    assert decided(record) is Action.QUARANTINED
    assert "cannot be read" in (record.failure_description or "")


def test_a_business_document_without_a_marker_in_the_markers_place_is_quarantined() -> None:
    record = from_document({"total": 5}, consumer="", key="k", prefix=RESERVED)
    assert decided(record) is Action.QUARANTINED
    assert record.extra == {"total": 5}
