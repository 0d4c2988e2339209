"""The payment provider's webhooks: what they tell of a charge, and what the order keeps of it."""

import functools
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from .idempotency import PermanentFailure, State, TransientFailure
from .idempotency.states import MAX_VERSION, Document
from .orders import Currency, Name, parsed

_STATUSES: Final = {
    "charge.succeeded": "paid",
    "charge.failed": "failed",
    "charge.refunded": "refunded",
}
_LOOK_AGAIN: Final = 10.0
"""Seconds until an order that is on its way should be there."""


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """A charge after a change; ``reference`` is the order's id.

    ``version`` is raised with every change of any charge of that order: it says which came last.
    """

    charge_id: Name
    reference: Name
    amount: Decimal
    currency: Currency
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)]


class PaymentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook's body, as Standard Webhooks has it. Types that are not known are no error."""

    type: Name
    timestamp: Annotated[datetime, Meta(tz=True)]
    data: msgspec.Raw

    def change(self) -> "PaymentChange | None":
        """What it changes; None for a type that is nothing to us."""
        status = _STATUSES.get(self.type)
        if status is None:
            return None
        charge = parsed(bytes(self.data), Charge)
        return PaymentChange(status=status, at=self.timestamp, charge=charge)


class PaymentChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order's payment."""

    status: str
    at: datetime
    charge: Charge

    @property
    def is_paid(self) -> bool:
        return self.status == "paid"

    def state(self) -> State:
        """The order's payment, under a version of its own beside everything else the order has."""
        return State(
            id=self.charge.reference,
            version=self.charge.version,
            document=functools.partial(_with_payment, self),
            version_in="payment_version",
        )


def _with_payment(change: PaymentChange, order: Document | None) -> dict[str, Any]:
    if order is None:
        raise TransientFailure("there is no such order, or not yet", retry_after=_LOOK_AGAIN)
    charge = change.charge
    wanted = (Decimal(order["total"]), order["currency"])
    if change.is_paid and (charge.amount, charge.currency) != wanted:
        raise PermanentFailure("AmountMismatch", "what was charged is not the order's total")
    return {
        **order,
        "payment_status": change.status,
        # always in UTC: it is compared as text
        "payment_changed_at": change.at.astimezone(UTC).isoformat(),
        "charge_id": charge.charge_id,
    }
