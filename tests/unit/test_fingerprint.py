"""Fingerprints: equal for true duplicates, different for everything else, never a crash."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    MalformedContent,
    canonical_json,
    canonical_json_without,
    json_fields,
    raw_bytes,
)
from shared.idempotency.fingerprint import same_content

text = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | text
    | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def _shuffled(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shuffled(value[name]) for name in reversed(value)}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(json_values)
def test_key_order_white_space_and_escapes_do_not_matter(value: object) -> None:
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    loose = json.dumps(_shuffled(value), indent=3, ensure_ascii=True).encode()
    assert canonical_json(compact) == canonical_json(loose)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (b"1", b"2"),
        (b"1.0", b"1"),
        (b"1.10", b"1.1"),
        (b"100", b"1e2"),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b"9007199254740992", b"9007199254740993"),
        (b"123456789012345678901234567890", b"123456789012345678901234567891"),
        (b"1e400", b"1e401"),
        ('"é"'.encode(), '"e\u0301"'.encode()),
        (b'"1"', b"1"),
        (b"null", b"false"),
        (b'{"a":null}', b"{}"),
        (b"[1,2]", b"[2,1]"),
        (b'{"a":{"b":1}}', b'{"a.b":1}'),
    ],
)
def test_other_content_has_another_fingerprint(a: bytes, b: bytes) -> None:
    assert canonical_json(a) != canonical_json(b)


def test_unicode_escapes_are_the_characters_they_stand_for() -> None:
    assert canonical_json(b'"\\u00e9"') == canonical_json('"é"'.encode())
    assert canonical_json(b'"\\ud83d\\ude00"') == canonical_json('"😀"'.encode())


def test_of_a_name_that_stands_twice_the_last_counts_as_it_does_for_the_handler() -> None:
    twice = b'{"a":1,"a":2}'
    assert json.loads(twice) == {"a": 2}
    assert canonical_json(twice) == canonical_json(b'{"a":2}')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{",
        b"[1,]",
        b"NaN",
        b"Infinity",
        b'"\\ud800"',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"1e99999999999999999999",
        b"-1E-99999999999999999999",
        b"1" * 5_000,
        b"'single'",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_json_is_malformed_content_and_no_crash(body: bytes) -> None:
    for digest in (canonical_json, canonical_json_without("x"), json_fields("x")):
        with pytest.raises(MalformedContent) as refused:
            digest(body)
        assert refused.value.reason in ("MalformedJson", "EmptyBody")


@given(st.binary(max_size=200))
def test_any_bytes_are_digested_or_refused(body: bytes) -> None:
    with contextlib.suppress(MalformedContent):
        assert canonical_json(body) == canonical_json(body)


def test_the_message_of_a_refusal_does_not_quote_the_payload() -> None:
    with pytest.raises(MalformedContent) as refused:
        canonical_json(b'{"card":"4111111111111111"')
    assert "4111" not in str(refused.value)


def test_volatile_fields_can_be_left_out() -> None:
    digest = canonical_json_without("sent_at", "trace")
    assert digest(b'{"id":1,"sent_at":5}') == digest(b'{"trace":"t","id":1}')
    assert digest(b'{"id":1}') != digest(b'{"id":2}')
    with pytest.raises(MalformedContent):
        digest(b"[]")


def test_chosen_fields_alone_may_count_and_a_missing_one_is_not_null() -> None:
    digest = json_fields("id", "total")
    assert digest(b'{"id":1,"total":"2.50","note":"a"}') == digest(b'{"total":"2.50","id":1}')
    assert digest(b'{"id":1}') != digest(b'{"id":1,"total":null}')


def test_another_choice_of_fields_is_another_algorithm() -> None:
    a, b = json_fields("id")(b'{"id":1}'), json_fields("id", "total")(b'{"id":1}')
    assert a.partition(":")[0] != b.partition(":")[0]
    assert same_content(a, b)


def test_a_deploy_that_changes_the_algorithm_is_never_a_mismatch() -> None:
    old, new = raw_bytes(b"{}"), canonical_json(b"{}")
    assert same_content(old, new)
    assert same_content(None, new)
    assert same_content(old, None)


def test_within_one_algorithm_other_content_is_other_content() -> None:
    assert same_content(raw_bytes(b"a"), raw_bytes(b"a"))
    assert not same_content(raw_bytes(b"a"), raw_bytes(b"b"))
