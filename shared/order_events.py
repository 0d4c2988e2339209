"""Order events: what is published on the topic of order events, in the shape of a CloudEvent.

Published with the order's id as session id, so that a subscription with sessions gets the events of
one order in order, and with a MessageId that is the same in every re-send.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from .idempotency import UnitOfWork, joined
from .orders import Name

ORDER_PLACED: Final = "OrderPlaced"
ORDER_PAID: Final = "OrderPaid"
ORDER_FULFILLED: Final = "OrderFulfilled"
_SOURCE: Final = "/orders"


class OrderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to one order.

    ``source`` and ``id`` together identify the event. ``subject`` is the order's id. ``version`` is an
    extension: the order's version that the event led to, raised with each of its events; gaps are
    allowed. Types that are not known are no error: a newer release may publish them.
    """

    id: Name
    source: Name
    type: Name
    subject: Name
    time: Annotated[datetime, Meta(tz=True)]
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    data: dict[str, Any] = {}
    specversion: Literal["1.0"] = "1.0"
    datacontenttype: Literal["application/json"] = "application/json"

    def encoded(self) -> bytes:
        """The event as it travels: structured CloudEvents JSON."""
        return msgspec.json.encode(self)

    def send_by(self, unit: UnitOfWork, topic: str) -> None:
        """Publish the event with a unit of work, when and only when that is committed."""
        unit.send(
            topic,
            self.encoded(),
            properties={"event-type": self.type},
            session_id=self.subject,
            content_type="application/cloudevents+json",
        )


def order_placed(order: Mapping[str, Any]) -> OrderEvent:
    """What is told of an order's document when it is made."""
    told = {name: order[name] for name in ("customer_id", "currency", "total")}
    return _event(ORDER_PLACED, order, at=order["placed_at"], data=told)


def order_fulfilled(order: Mapping[str, Any]) -> OrderEvent:
    """What is told of an order's document once it is fulfilled."""
    told = {name: order[name] for name in ("customer_id", "warehouse")}
    return _event(ORDER_FULFILLED, order, at=order["fulfilled_at"], data=told)


def _event(kind: str, order: Mapping[str, Any], *, at: str, data: dict[str, Any]) -> OrderEvent:
    """The event that led to this version of an order."""
    order_id, version = str(order["order_id"]), int(order["version"])
    # derived: made again by another attempt at the same change it is the same event
    identity = hashlib.sha256(joined(order_id, str(version), kind).encode()).hexdigest()
    return OrderEvent(
        id=f"evt-{identity[:32]}",
        source=_SOURCE,
        type=kind,
        subject=order_id,
        time=datetime.fromisoformat(at),
        version=version,
        data=data,
    )
