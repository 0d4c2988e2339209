"""Orders: what a message must hold, and the document it becomes."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .idempotency import MalformedContent, joined

type Name = Annotated[str, Meta(min_length=1, max_length=128)]
_LARGEST_AMOUNT = Decimal(10) ** 12
_MOST = Decimal(10) ** 24
_DECIMALS = 4
"""Of an amount: no currency has more, and totals of any order stay exact."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One position of an order; ``unit_price`` in the order's currency."""

    sku: Name
    quantity: Annotated[int, Meta(ge=1, le=1_000_000)]
    unit_price: Decimal

    def __post_init__(self) -> None:
        if not (is_amount(self.unit_price) and self.unit_price <= _LARGEST_AMOUNT):
            raise ValueError(
                f"Expected a `unit_price` from 0 to 10^12, of at most {_DECIMALS} decimals"
            )


type Lines = Annotated[tuple[Line, ...], Meta(min_length=1, max_length=5000)]
type Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$")]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order as it travels: ``order_id`` identifies it in every redelivery and re-send."""

    order_id: Name
    customer_id: Name
    currency: Currency
    lines: Lines

    def total(self) -> Decimal:
        """The sum of its lines, in its currency."""
        return sum((line.quantity * line.unit_price for line in self.lines), Decimal())

    def document(self) -> dict[str, Any]:
        """The document that is kept; amounts are text, so that no store rounds them."""
        return {
            "type": "order",
            **msgspec.to_builtins(self),
            "total": str(self.total()),
            "status": "placed",
            "version": 1,
            "placed_at": datetime.now(UTC).isoformat(),
        }


class SubmittedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order as a caller submits it: the id may be left to us."""

    customer_id: Name
    currency: Currency
    lines: Lines
    order_id: Name | None = None

    def named(self, caller: str, idempotency_key: str) -> Order:
        """The order with its id: the caller's own, or one derived from caller, key and content.

        Derived, not random: a crash between sending and answering cannot make two orders. The content
        is part of it, because the key may be used again for another order once it has expired.
        """
        order_id = self.order_id
        if order_id is None:
            content = hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()
            derived = hashlib.sha256(joined(caller, idempotency_key, content).encode()).hexdigest()
            order_id = f"ord-{derived[:24]}"
        return Order(
            order_id=order_id,
            customer_id=self.customer_id,
            currency=self.currency,
            lines=self.lines,
        )


def is_amount(value: Decimal) -> bool:
    """Whether a number can be an amount of money: from 0 to 10^24, and not finer than any currency is.

    Bounded, because a number of a few characters can be written out in millions.
    """
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and 0 <= value <= _MOST and exponent >= -_DECIMALS


def parsed[T](body: bytes, as_type: type[T]) -> T:
    """A JSON body as ``as_type``; raises MalformedContent naming the place, never quoting a value."""
    if not body:
        raise MalformedContent("the body is empty", reason="EmptyBody")
    try:
        return msgspec.json.decode(body, type=as_type)
    except msgspec.ValidationError as error:
        raise MalformedContent(str(error), reason="SchemaViolation") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedContent(f"the body is not JSON: {error}", reason="MalformedJson") from error


def check_key(order_id: str, key: str) -> None:
    """Raise MalformedContent unless a message about an order is known by the order's id.

    Under another one its duplicates would be looked for in another order's partition.
    """
    if order_id != key:
        raise MalformedContent(
            "the message's deduplication key is not its order_id", reason="KeyMismatch"
        )


def changed_fields(document: Mapping[str, Any], body: bytes) -> tuple[str, ...]:
    """The fields in which a recorded order and a message differ; later updates of it do not count."""
    try:
        sent = msgspec.to_builtins(parsed(body, Order))
    except MalformedContent:
        return ("body",)
    return tuple(name for name, value in sent.items() if document.get(name) != value)
