"""Ids that are left to the app: the same for every repetition, and for nothing else."""

from typing import Any

import pytest

from shared.orders import SubmittedOrder, parsed

BODY = b'{"customer_id": "c", "currency": "EUR", "lines": [{"sku": "t", "quantity": 1, "unit_price": "1"}]}'
AGAIN = b'{"lines":[{"unit_price":"1","quantity":1,"sku":"t"}],"currency":"EUR","customer_id":"c"}'
OTHER = BODY.replace(b'"quantity": 1', b'"quantity": 2')


def order_id(body: bytes = BODY, caller: str = "a", key: str = "k") -> str:
    return parsed(body, SubmittedOrder).named(caller, key).order_id


def test_a_repetition_has_the_id_of_the_first_however_it_is_written() -> None:
    """A crash between sending and answering cannot make two orders."""
    assert order_id() == order_id(AGAIN)


@pytest.mark.parametrize("other", [{"caller": "b"}, {"key": "l"}])
def test_another_caller_or_key_is_another_order(other: dict[str, Any]) -> None:
    assert order_id(**other) != order_id()


def test_a_key_that_is_used_again_for_other_content_is_another_order() -> None:
    """Once the key has expired; under the old id the new order would be taken for a mismatch."""
    assert order_id(OTHER) != order_id()


def test_an_id_of_the_caller_s_own_stays() -> None:
    assert order_id(BODY.replace(b"{", b'{"order_id": "o-1", ', 1)) == "o-1"
