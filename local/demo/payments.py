"""The payments part: what goes wrong at the provider, and what its ledger says at the end."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Self

from local.demo.traffic import PlannedOrder
from local.payments import Charge, Faults

SUBSCRIPTION = "order-events/subscriptions/payments"
SETTINGS: Mapping[str, str] = {
    # Shorter than in Azure, so that a charge in doubt is settled while one watches.
    "IDEMPOTENCY_LEASE_SECONDS": "5",
    "IDEMPOTENCY_HEARTBEAT_SECONDS": "1",
    "IDEMPOTENCY_WAIT_SECONDS": "8",
    "IDEMPOTENCY_DEADLINE_SECONDS": "60",
    "PAYMENT_TIMEOUT_SECONDS": "2",
    "PAYMENT_SETTLE_SECONDS": "2",
    "OUTBOX_GRACE_SECONDS": "3",
    "OUTBOX_SWEEP_SCHEDULE": "*/3 * * * * *",
}
EVERY = 3
"""One in so many orders meets a fault at its first charge."""
LANDS_AFTER = 1.0


def beset(faults: Faults, orders: Sequence[PlannedOrder]) -> None:
    """Let some orders' first charges go wrong, each in another way."""
    ways: tuple[Callable[..., None], ...] = (
        faults.time_out_after_charging,
        faults.drop_connection_after,
        faults.fail_after_charging,
        functools.partial(faults.land_later, LANDS_AFTER),
        faults.time_out_before_charging,
        faults.drop_connection_before,
        faults.fail_before_charging,
        faults.throttle,
    )
    for planned, fault in zip(orders[::EVERY], cycle(ways), strict=False):
        fault(reference=planned.id)


@dataclass(frozen=True, slots=True)
class Payments:
    """What the provider knows, whatever anybody was told.

    charges: by order. struck: faults by name. dead: order events that nobody could charge for.
    """

    charges: Counter[str]
    struck: Mapping[str, int]
    dead: int

    @classmethod
    def of(cls, ledger: Iterable[Charge], struck: Mapping[str, int], dead: int) -> Self:
        return cls(Counter(charge.reference for charge in ledger), dict(struck), dead)

    @property
    def charged(self) -> int:
        """Orders that were paid for."""
        return len(self.charges)

    @property
    def charged_twice(self) -> tuple[str, ...]:
        """Orders that were paid for more than once."""
        return tuple(order for order, count in self.charges.items() if count > 1)

    def unpaid_of(self, orders: Iterable[PlannedOrder]) -> tuple[str, ...]:
        """Those that nobody was charged for."""
        return tuple(each.id for each in orders if not self.charges[each.id])
