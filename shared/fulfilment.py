"""Fulfilment: what becomes of an order that is to be shipped."""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from .idempotency import Current, PermanentFailure, UnitOfWork
from .orders import Name

_PER_DOCUMENT: Final = 120
"""Lines in one document: the largest order fits into one transaction, and a document into an entity."""


class FulfilmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An order that may be shipped, and from where; known by the order's id."""

    order_id: Name
    warehouse: Name = "main"


def fulfil(
    order: Current, request: FulfilmentRequest, unit: UnitOfWork, *, suffix: str
) -> dict[str, Any]:
    """Put the order, its lines and its reservations into the unit of work; the order as it will be.

    Lines and reservations are documents of many, since a transaction takes only so many operations.
    ``suffix`` is in their ids, so that they meet no other document's, the order's own included.
    Raises PermanentFailure for an order that is fulfilled already.
    """
    if "fulfilment_status" in order.document:
        raise PermanentFailure("AlreadyFulfilled", "the order was fulfilled by another message")
    document = {
        **order.document,
        # `status` is what the shipper reports, by versions of its own
        "fulfilment_status": "fulfilled",
        "version": order.document["version"] + 1,
        "warehouse": request.warehouse,
        "fulfilled_at": datetime.now(UTC).isoformat(),
    }
    unit.replace(order, document)
    lines: list[dict[str, Any]] = document["lines"]
    reserved: Counter[str] = Counter()
    for line in lines:
        reserved[line["sku"]] += line["quantity"]
    reservations: list[dict[str, Any]] = [
        {"sku": sku, "quantity": quantity} for sku, quantity in reserved.items()
    ]
    for kind, entries in (("lines", lines), ("reservations", reservations)):
        for number, page in enumerate(_pages(entries), 1):
            unit.create(
                f"{kind}-{suffix}-{number:03}",
                {
                    "type": kind,
                    "order_id": request.order_id,
                    "warehouse": request.warehouse,
                    "entries": page,
                },
            )
    return document


def _pages(entries: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    return (list(page) for page in itertools.batched(entries, _PER_DOCUMENT, strict=False))
