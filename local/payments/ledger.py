"""What was really charged: the truth for tests and the demo, whatever callers were told."""

import threading
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from .charge_request import ChargeRequest


@dataclass(frozen=True, slots=True)
class Charge:
    """Money that was taken once. `key` is None when the caller sent no idempotency key."""

    charge_id: str
    key: str | None
    customer_id: str
    amount: Decimal
    currency: str
    reference: str
    charged_at: datetime

    def document(self) -> dict[str, Any]:
        """As callers see it, fit for JSON."""
        return {
            "charge_id": self.charge_id,
            "status": "succeeded",
            "customer_id": self.customer_id,
            "amount": str(self.amount),
            "currency": self.currency,
            "reference": self.reference,
            "idempotency_key": self.key,
            "charged_at": self.charged_at.isoformat(),
        }


class Ledger:
    """All charges in the order they happened; none is ever changed or removed. Thread-safe."""

    def __init__(self) -> None:
        self._charges: list[Charge] = []
        self._writing = threading.Lock()

    def append(self, request: ChargeRequest, key: str | None, charged_at: datetime) -> Charge:
        """Take the money: each call is a charge of its own."""
        charge = Charge(
            charge_id=f"ch_{uuid.uuid4().hex}",
            key=key,
            customer_id=request.customer_id,
            amount=Decimal(request.amount),
            currency=request.currency,
            reference=request.reference,
            charged_at=charged_at,
        )
        with self._writing:
            self._charges.append(charge)
        return charge

    def all(self) -> tuple[Charge, ...]:
        """Everything up to now."""
        with self._writing:
            return tuple(self._charges)

    def of_reference(self, reference: str) -> tuple[Charge, ...]:
        """The charges for one reference, oldest first."""
        return tuple(charge for charge in self.all() if charge.reference == reference)

    def of_key(self, key: str) -> tuple[Charge, ...]:
        """The charges made under one key, oldest first; also when the key was forgotten since."""
        return tuple(charge for charge in self.all() if charge.key == key)

    def of_id(self, charge_id: str) -> tuple[Charge, ...]:
        """The one charge with this id, or none."""
        return tuple(charge for charge in self.all() if charge.charge_id == charge_id)

    def charged_twice(self) -> tuple[str, ...]:
        """References that were charged more than once, in the order of their first charge."""
        counts = Counter(charge.reference for charge in self.all())
        return tuple(reference for reference, count in counts.items() if count > 1)
