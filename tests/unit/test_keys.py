"""Keys: any text identifies a message, and no two of them ever meet."""

import hashlib
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shared.idempotency import InvalidKey, MissingKey, joined, storage_id
from shared.idempotency.keys import bucket, checked, parts_of, presentable
from shared.idempotency.testing import HOSTILE_KEYS

any_text = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("/\\#?%!~ .\x00\ud800\udfff"),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("key", [None, ""])
def test_a_missing_key_is_refused_and_the_message_says_what_to_set(key: str | None) -> None:
    with pytest.raises(MissingKey, match="MessageId"):
        checked(key, what="MessageId")


def test_a_key_is_kept_up_to_1024_bytes_of_utf8() -> None:
    assert checked("é" * 512) == "é" * 512
    with pytest.raises(InvalidKey, match="1025 bytes"):
        checked("é" * 512 + "x")


def test_the_hostile_keys_are_all_different_and_stay_so_in_their_storage_form() -> None:
    assert len(set(HOSTILE_KEYS)) == len(HOSTILE_KEYS)
    assert len({storage_id(key) for key in HOSTILE_KEYS}) == len(HOSTILE_KEYS)
    assert all(checked(key) == key for key in HOSTILE_KEYS)


@given(any_text, any_text)
@example("a", "A")
@example("é", "e\u0301")
@example("key", "key ")
@example("/", "!" + hashlib.sha256(b"/").hexdigest())
@example("\ud83d", "\\ud83d")
def test_different_keys_never_collide_in_storage(a: str, b: str) -> None:
    assert (storage_id(a) == storage_id(b)) == (a == b)


@given(any_text)
def test_a_storage_form_is_one_that_every_store_takes_and_is_its_own(key: str) -> None:
    form = storage_id(key)
    assert re.fullmatch(r"[A-Za-z0-9!][A-Za-z0-9_.:@=,-]{0,119}", form)
    assert form == storage_id(key)


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.:@=,-]{0,119}\Z"))
def test_a_readable_key_stays_readable(key: str) -> None:
    assert storage_id(key) == key


def test_case_folding_cannot_make_two_keys_one() -> None:
    """Both stay as they are: services compare identifiers by code point."""
    assert {storage_id("Order-1"), storage_id("order-1")} == {"Order-1", "order-1"}


parts = st.lists(any_text, min_size=1, max_size=4)


@given(parts, parts)
@example(["a", "b"], ["ab"])
@example(["1:a;1:b"], ["a", "b"])
@example(["a;", "b"], ["a", ";b"])
def test_different_lists_of_parts_never_give_one_key(a: list[str], b: list[str]) -> None:
    assume(a != b)
    assert joined(*a) != joined(*b)


@pytest.mark.parametrize("missing", [None, ""])
def test_a_partly_missing_key_is_refused_naming_the_part(missing: str | None) -> None:
    with pytest.raises(MissingKey, match="part 2 of 3"):
        joined("tenant", missing, "id")


@given(any_text)
def test_a_presentable_key_is_text_that_any_encoding_takes(key: str) -> None:
    shown = presentable(key)
    shown.encode("utf-8")
    assert shown == key or any("\ud800" <= character <= "\udfff" for character in key)


def test_buckets_are_the_same_in_every_process_and_spread_evenly() -> None:
    assert [bucket(key, 64) for key in ("order-1", "order-2", "\ud83d")] == [35, 20, 56]
    counts = [0] * 64
    for number in range(6400):
        counts[bucket(f"order-{number}", 64)] += 1
    assert min(counts) > 60
    assert max(counts) < 150


@given(parts=st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4))
def test_the_parts_of_a_joined_key_come_back(parts: list[str]) -> None:
    assert parts_of(joined(*parts)) == tuple(parts)


@pytest.mark.parametrize("key", ["o-1", "3:ab;", "2:abc", "x:ab;", "0:;", "-1:a;", "1:a;tail"])
def test_a_key_that_was_not_joined_has_no_parts(key: str) -> None:
    with pytest.raises(InvalidKey, match="not joined"):
        parts_of(key)
