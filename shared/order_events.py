"""Order events: what is published on the topic of order events, in the shape of a CloudEvent.

Published with the order's id as session id, so that a subscription with sessions gets the events of
one order in order, and with a MessageId that is the same in every re-send.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from .orders import Name

ORDER_PLACED: Final = "OrderPlaced"
ORDER_PAID: Final = "OrderPaid"
ORDER_FULFILLED: Final = "OrderFulfilled"


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
