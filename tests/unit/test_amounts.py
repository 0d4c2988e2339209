"""Amounts: what can be money, and what only looks like a number."""

from decimal import Decimal

import pytest

from shared.orders import is_amount


@pytest.mark.parametrize("text", ["0", "12.50", "0.0001", "1E+3", "5e21"])
def test_what_can_be_money_is_an_amount(text: str) -> None:
    assert is_amount(Decimal(text))


@pytest.mark.parametrize("text", ["-0.01", "0.00001", "NaN", "sNaN", "Infinity", "1E+999999"])
def test_what_cannot_be_money_is_none(text: str) -> None:
    assert not is_amount(Decimal(text))
