"""The audit trail: every event of every order, once, as it was published."""

import msgspec

from .idempotency import current_attempt, current_unit
from .order_events import OrderEvent
from .orders import parsed


def audit(body: bytes) -> None:
    """Keep an event as a document that is its own marker: it never expires, nor does its key."""
    event = parsed(body, OrderEvent)
    current_unit().mark({"type": "audit", "event": msgspec.to_builtins(event)})
    current_unit().create(
        f"audited-{current_attempt().owner}",
        {"type": "journal", "effect": "audited", "order_id": event.subject},
    )
