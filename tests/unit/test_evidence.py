"""Evidence of a mismatch names the changed fields; the record holds none of the payload."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency.evidence import changed_fields, evidence_of

BODY = b'{"order_id":"o-1","total":"10.00","card":"4111111111111111","lines":[{"sku":"a"}]}'


def test_the_names_of_changed_added_and_removed_fields_are_given() -> None:
    other = b'{"order_id":"o-1","total":"10.01","card":"4111111111111111","note":null,"lines":[]}'
    assert changed_fields(evidence_of(BODY), other) == ("lines", "note", "total")


def test_key_order_and_white_space_change_nothing() -> None:
    spaced = json.dumps(dict(reversed(json.loads(BODY).items())), indent=2).encode()
    assert changed_fields(evidence_of(BODY), spaced) == ()


def test_no_value_is_in_the_evidence_and_equal_values_look_different_in_each_record() -> None:
    first, second = evidence_of(BODY), evidence_of(BODY)
    assert first is not None
    assert second is not None
    assert "4111" not in first
    assert json.loads(first)["fields"]["card"] != json.loads(second)["fields"]["card"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"5",
        b"plain text",
        b"{broken",
        b'{"a":' * 50_000,
        json.dumps({f"field{n}": n for n in range(65)}).encode(),
        json.dumps({"n" * 65: 1}).encode(),
    ],
    ids=lambda body: repr(body[:10]),
)
def test_a_body_that_is_no_small_object_has_no_evidence_and_is_no_error(body: bytes) -> None:
    assert evidence_of(body) is None
    assert changed_fields(evidence_of(BODY), body) == ()


@pytest.mark.parametrize("evidence", [None, "", "?", "[]", '{"salt":1}'])
def test_evidence_that_cannot_be_read_tells_nothing(evidence: str | None) -> None:
    assert changed_fields(evidence, BODY) == ()


text = st.text(st.characters(codec="utf-8"), max_size=8)


@given(st.dictionaries(text, st.integers() | text, max_size=6))
def test_an_object_never_differs_from_itself(fields: dict[str, object]) -> None:
    body = json.dumps(fields).encode()
    assert changed_fields(evidence_of(body), body) == ()
