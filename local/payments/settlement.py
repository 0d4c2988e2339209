"""Settlements: what a shop says it has taken on a day, noted once per key beside the charges."""

import threading
import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from .charge_request import AMOUNT, CURRENCY, InvalidRequest, Name

type Amounts = dict[Annotated[str, msgspec.Meta(pattern=CURRENCY)],
                    Annotated[str, msgspec.Meta(pattern=AMOUNT)]]  # fmt: skip


class SettlementRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a settlement: amounts by currency, and of how many orders they are the sum."""

    reference: Name
    amounts: Amounts
    orders: Annotated[int, msgspec.Meta(ge=0)]

    @property
    def names(self) -> tuple[str, ...]:
        """Those under which it may be declined."""
        return (self.reference,)

    @classmethod
    def of(cls, body: bytes) -> "SettlementRequest":
        """Read a JSON body; InvalidRequest when it is not a settlement."""
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(str(error)) from error


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settlement that was noted. `key` is None when the caller sent no idempotency key."""

    settlement_id: str
    key: str | None
    reference: str
    amounts: dict[str, Decimal]
    orders: int
    settled_at: datetime

    def document(self) -> dict[str, Any]:
        """As callers see it, fit for JSON."""
        return {
            "settlement_id": self.settlement_id,
            "reference": self.reference,
            "amounts": {currency: str(amount) for currency, amount in self.amounts.items()},
            "orders": self.orders,
            "idempotency_key": self.key,
            "settled_at": self.settled_at.isoformat(),
        }


class Settlements:
    """All settlements in the order they happened; none is ever changed or removed. Thread-safe."""

    def __init__(self) -> None:
        self._noted: list[Settlement] = []
        self._writing = threading.Lock()

    def append(
        self, request: SettlementRequest, key: str | None, settled_at: datetime
    ) -> Settlement:
        """Note it: each call is a settlement of its own."""
        settlement = Settlement(
            settlement_id=f"st_{uuid.uuid4().hex}",
            key=key,
            reference=request.reference,
            amounts={currency: Decimal(amount) for currency, amount in request.amounts.items()},
            orders=request.orders,
            settled_at=settled_at,
        )
        with self._writing:
            self._noted.append(settlement)
        return settlement

    def all(self) -> tuple[Settlement, ...]:
        """Everything up to now."""
        with self._writing:
            return tuple(self._noted)

    def of_key(self, key: str) -> tuple[Settlement, ...]:
        """Those noted under one key, oldest first; also when the key was forgotten since."""
        return tuple(each for each in self.all() if each.key == key)

    def of_reference(self, reference: str) -> tuple[Settlement, ...]:
        """Those for one reference, oldest first."""
        return tuple(each for each in self.all() if each.reference == reference)
