"""The daily settlement: what was paid on a day, told to the payment provider currency by currency."""

import functools
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from .idempotency import Rerun, current_attempt
from .paid_orders import PaidOrders
from .payments import PaymentProvider, Settled

TOTALS: Final = "totals"
CLOSE: Final = "close"


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What was paid in one currency, and for how many orders."""

    amount: Decimal
    orders: int


class DaySettled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a day: the provider's settlements by currency, and the one that closes it."""

    day: date
    settlements: dict[str, str]
    closed_by: str


def day_before(due: datetime) -> date:
    """The day that a slot settles: the one before it, which is over."""
    return due.date() - timedelta(days=1)


def name_of_day(due: datetime) -> str:
    """The name of a slot: the day it settles, so that no schedule settles a day twice."""
    return day_before(due).isoformat()


async def settle_day(day: date, orders: PaidOrders, provider: PaymentProvider) -> DaySettled:
    """Total a day's paid orders, settle each currency, close the day: each a recorded step.

    The totals are recorded before anything is told. A restart counts again, and goes by what was
    recorded: an order that is paid, or refunded, in between must not make the second half contradict
    the first.
    """
    attempt = current_attempt()
    counted = await _totals_of(day, orders)

    async def count() -> dict[str, Total]:
        return counted

    totals = await attempt.step(
        TOTALS,
        count,
        deadline=provider.timeout,  # it calls nobody
        policy=Rerun(provider_key_retention=math.inf),
    )
    settlements = {}
    for currency, total in sorted(totals.items()):
        settled = await attempt.step(
            f"settle-{currency}",
            functools.partial(
                provider.settle, f"{day}/{currency}", {currency: total.amount}, total.orders
            ),
            deadline=provider.timeout,
            result_type=Settled,
        )
        settlements[currency] = settled.settlement_id
    amounts = {currency: total.amount for currency, total in totals.items()}
    closed = await attempt.step(
        CLOSE,
        functools.partial(
            provider.settle, str(day), amounts, sum(total.orders for total in totals.values())
        ),
        deadline=provider.timeout,
        last=True,
        result_type=Settled,
    )
    return DaySettled(day=day, settlements=settlements, closed_by=closed.settlement_id)


async def _totals_of(day: date, orders: PaidOrders) -> dict[str, Total]:
    """By currency; one number for each is all that is kept of the orders."""
    amounts: dict[str, Decimal] = {}
    counts: dict[str, int] = {}
    async for payment in orders.on(day):
        amounts[payment.currency] = amounts.get(payment.currency, Decimal()) + payment.total
        counts[payment.currency] = counts.get(payment.currency, 0) + 1
    return {
        currency: Total(amount=amount, orders=counts[currency])
        for currency, amount in sorted(amounts.items())
    }
