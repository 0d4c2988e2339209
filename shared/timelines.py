"""Timelines: what has happened to an order, in order."""

import functools
from typing import Any, Final

from .idempotency import State
from .idempotency.states import Document
from .order_events import OrderEvent

MOST_ENTRIES: Final = 100
"""A document has a size: of a longer timeline the latest are kept, and the others counted."""


def with_event(event: OrderEvent) -> State:
    """The state of an order's timeline after an event.

    Made from the timeline that is there, so the events of an order have to come in order: one that
    comes after its successor is stale, and the timeline does without it.
    """
    return State(
        id=event.subject, version=event.version, document=functools.partial(_extended, event)
    )


def _extended(event: OrderEvent, timeline: Document | None) -> dict[str, Any]:
    there = timeline or {"entries": [], "earlier": 0}
    entry = {"type": event.type, "version": event.version, "time": event.time.isoformat()}
    entries = [*there["entries"], entry]
    return {
        "type": "timeline",
        "order_id": event.subject,
        "latest": event.type,
        "entries": entries[-MOST_ENTRIES:],
        "earlier": there["earlier"] + len(entries[:-MOST_ENTRIES]),
    }
