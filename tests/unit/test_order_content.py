"""What an order must hold: refused before it is accepted, naming the place, never quoting a value."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from shared.idempotency import MalformedContent
from shared.orders import Order, SubmittedOrder, parsed

LINE: dict[str, Any] = {"sku": "tea", "quantity": 2, "unit_price": "4.90"}
ORDER: dict[str, Any] = {
    "order_id": "o-1",
    "customer_id": "c-1",
    "currency": "EUR",
    "lines": [LINE],
}


def read(**fields: Any) -> Order:
    return parsed(msgspec.json.encode({**ORDER, **fields}), Order)


@pytest.mark.parametrize(
    "price",
    [
        "-0.01",
        "-1",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e13",
        "0.00001",
        "1E-999999",
        "1.00000",
        "x",
        None,
    ],
)
def test_given_a_price_that_is_no_amount_then_the_order_is_refused_naming_the_line(
    price: Any,
) -> None:
    with pytest.raises(MalformedContent, match=r"lines\[1\]") as refused:
        read(lines=[LINE, {**LINE, "unit_price": price}])
    assert refused.value.reason == "SchemaViolation"


@pytest.mark.parametrize("price", ["0", "0.0001", "1e12", "4.90", 4, 4.9])
def test_given_a_price_that_is_an_amount_then_its_digits_stay(price: Any) -> None:
    order = read(lines=[{**LINE, "quantity": 1, "unit_price": price}])
    assert order.total() == Decimal(str(price))


@pytest.mark.parametrize("quantity", [0, -1, 1_000_001, 1.5, "2", None, True])
def test_given_a_quantity_that_is_none_then_the_order_is_refused(quantity: Any) -> None:
    with pytest.raises(MalformedContent, match=r"lines\[0\]\.quantity"):
        read(lines=[{**LINE, "quantity": quantity}])


@pytest.mark.parametrize("field", ["order_id", "customer_id"])
@pytest.mark.parametrize("value", ["", "x" * 129, 7, None])
def test_given_an_id_that_is_none_then_the_order_is_refused(field: str, value: Any) -> None:
    with pytest.raises(MalformedContent, match=field):
        read(**{field: value})


def test_given_no_lines_or_too_many_then_the_order_is_refused() -> None:
    for lines in ([], [LINE] * 5001):
        with pytest.raises(MalformedContent, match="lines"):
            read(lines=lines)


def test_given_the_largest_order_there_can_be_then_its_total_is_exact() -> None:
    line = {**LINE, "quantity": 1_000_000, "unit_price": "999999999999.9999"}
    assert read(lines=[line] * 5000).total() == Decimal("999999999999.9999") * 5_000_000_000


def test_given_a_submitted_order_then_it_is_held_to_the_same() -> None:
    body = msgspec.json.encode({**ORDER, "lines": [{**LINE, "unit_price": "0.00001"}]})
    with pytest.raises(MalformedContent, match="at most 4 decimals"):
        parsed(body, SubmittedOrder)
