"""How an order gets on, as whoever ships it reports: absolute states, each with its version."""

import functools
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from .idempotency import MalformedContent, State, TransientFailure
from .idempotency.states import MAX_VERSION, Document
from .idempotency.triggers.cloud_event import CloudEvent
from .orders import parsed

ORDER_STATUS_CHANGED: Final = "OrderStatusChanged"
_LOOK_AGAIN: Final = 10.0
"""Seconds until an order that is on its way should be there."""


class OrderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An event's data. ``version`` is raised by the source with every change of this order's status."""

    status: Literal["placed", "packed", "shipped", "delivered", "returned", "cancelled"]
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)]


def status_of(event: CloudEvent) -> State:
    """The status that an event tells of the order that is its subject; raises MalformedContent."""
    if event.type != ORDER_STATUS_CHANGED:
        raise MalformedContent(
            f"the event's type is not {ORDER_STATUS_CHANGED}", reason="UnknownType"
        )
    if not event.subject:
        raise MalformedContent("the event has no subject, the order's id", reason="SchemaViolation")
    told = parsed(event.data, OrderStatus)
    return State(
        id=event.subject,
        version=told.version,
        document=functools.partial(_with_status, told),
        version_in="status_version",
    )


def _with_status(told: OrderStatus, order: Document | None) -> dict[str, Any]:
    if order is None:
        raise TransientFailure("there is no such order, or not yet", retry_after=_LOOK_AGAIN)
    return {**order, "status": told.status}
