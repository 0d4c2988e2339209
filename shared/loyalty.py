"""Loyalty: customers get points for the orders they place, one for each whole unit of currency."""

from decimal import Decimal
from typing import Final

import msgspec

from .idempotency import MalformedContent, current_attempt, current_unit, joined
from .idempotency.keys import parts_of
from .order_events import ORDER_PLACED, OrderEvent
from .orders import Name, is_amount, parsed

ACCOUNT: Final = "account"
"""The id of the document of a customer's account, in the customer's partition."""
_LARGEST_TOTAL: Final = Decimal(10) ** 15
"""Points up to here are whole numbers in every store: Cosmos DB's numbers have 53 bits."""


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """What of an event's data gives points."""

    customer_id: Name
    total: Decimal

    def __post_init__(self) -> None:
        if not (is_amount(self.total) and self.total <= _LARGEST_TOTAL):
            raise ValueError("Expected a `total` from 0 to 10^15, of at most 4 decimals")

    @property
    def points(self) -> int:
        return int(self.total)


def key_of(body: bytes) -> str:
    """Whose account an event is for, and which event it is: account and marker share a partition.

    An event that tells of no customer gets a partition of its own, by its order.
    """
    event = parsed(body, OrderEvent)
    customer = event.data.get("customer_id")
    owner = customer if isinstance(customer, str) and customer else event.subject
    return joined(owner, event.source, event.id)


def partition_of(key: str) -> str:
    """The partition of the account that a key is for."""
    return parts_of(key)[0]


async def credit(body: bytes) -> None:
    """Add an order's points to its customer's account, in the transaction of the marker.

    Two orders of one customer at a time: the second finds another account than it read, and comes back.
    """
    event = parsed(body, OrderEvent)
    if event.type != ORDER_PLACED:
        return
    try:
        purchase = msgspec.convert(event.data, Purchase)
    except msgspec.ValidationError as error:
        raise MalformedContent(f"the event's data: {error}", reason="SchemaViolation") from error
    unit = current_unit()
    account = await unit.read(ACCOUNT)
    if account is None:
        unit.create(ACCOUNT, {"type": "account", "points": purchase.points})
    else:
        unit.replace(
            account, {**account.document, "points": account.document["points"] + purchase.points}
        )
    unit.create(
        f"credited-{current_attempt().owner}",
        {
            "type": "journal",
            "effect": "credited",
            "order_id": event.subject,
            "points": purchase.points,
        },
    )
