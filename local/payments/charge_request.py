"""What a caller may ask for, and nothing else."""

from decimal import Decimal
from typing import Annotated

import msgspec

AMOUNT = r"\A[0-9]{1,12}(\.[0-9]{1,4})?\Z"
CURRENCY = r"\A[A-Z]{3}\Z"
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Amount = Annotated[str, msgspec.Meta(pattern=AMOUNT)]
_Currency = Annotated[str, msgspec.Meta(pattern=CURRENCY)]

LONGEST_KEY = 255


class InvalidRequest(Exception):
    """The request makes no sense; the message tells the caller why. Nothing has happened."""


class ChargeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a charge. `amount` is decimal text, so that no digit is lost on the way.

    Two requests under one key are the same when all fields are, to the letter.
    """

    customer_id: Name
    amount: _Amount
    currency: _Currency
    reference: Name

    def __post_init__(self) -> None:
        if not Decimal(self.amount):
            raise ValueError("`amount` is zero")

    @property
    def names(self) -> tuple[str, ...]:
        """Those under which it may be declined."""
        return (self.customer_id, self.reference)

    @classmethod
    def of(cls, body: bytes) -> "ChargeRequest":
        """Read a JSON body; InvalidRequest when it is not a charge."""
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(str(error)) from error


def idempotency_key(header: str | None) -> str | None:
    """The key as sent, None without one; InvalidRequest for an empty or unprintable one."""
    if header is None:
        return None
    if not (0 < len(header) <= LONGEST_KEY and header.isascii() and header.isprintable()):
        raise InvalidRequest(f"Idempotency-Key: 1 to {LONGEST_KEY} printable ASCII characters")
    return header
