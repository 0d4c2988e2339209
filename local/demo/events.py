"""Order events: what subscribers of the topic were told, and how often each order was fulfilled.

The demo adds a subscription that nobody consumes: it witnesses every event that the broker let pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from local.demo.traffic import PlannedOrder
from local.servicebus import Counts, Entities, QueueSettings, Snapshot
from shared.order_events import ORDER_FULFILLED, ORDER_PLACED, OrderEvent

TOPIC = "order-events"
WITNESS = f"{TOPIC}/subscriptions/witness"
FULFILMENT = "fulfilment"

_event = msgspec.json.Decoder(OrderEvent)


def with_witness(entities: Entities) -> Entities:
    """The same entities, with a subscription more to the topic of order events."""
    old = entities.topic(TOPIC)
    new = replace(old, subscriptions=(*old.subscriptions, QueueSettings("witness")))
    return replace(entities, topics=tuple(new if t is old else t for t in entities.topics))


@dataclass(frozen=True, slots=True)
class Events:
    """What the topic has let pass.

    told: by type and order, how many events there were: under one MessageId it is one.
    repeats: messages sent again under an id that the broker knew. fulfilments: effects by order.
    """

    told: Mapping[str, Counter[str]]
    repeats: int
    fulfilments: Counter[str]

    @classmethod
    def of(cls, witnessed: Iterable[Snapshot], topic: Counts, fulfilments: Counter[str]) -> Self:
        distinct = {message.message_id: message.body for message in witnessed}
        told = {ORDER_PLACED: Counter[str](), ORDER_FULFILLED: Counter[str]()}
        for body in distinct.values():
            event = _event.decode(body)
            told[event.type][event.subject] += 1
        return cls(told, topic.dropped_by_detection, fulfilments)

    @property
    def placed(self) -> Counter[str]:
        return self.told[ORDER_PLACED]

    @property
    def fulfilled(self) -> Counter[str]:
        return self.told[ORDER_FULFILLED]

    def problems(self, orders: Iterable[PlannedOrder]) -> Iterable[str]:
        """Orders of which an event or a fulfilment is missing, or is there twice, or is nobody's."""
        expected = Counter(planned.id for planned in orders)
        for what, found in (
            (f"told {ORDER_PLACED}", self.placed),
            (f"told {ORDER_FULFILLED}", self.fulfilled),
            ("fulfilled", self.fulfilments),
        ):
            if missing := sorted(expected - found):
                yield f"not {what}: {', '.join(missing[:5])}"
            if surplus := sorted(found - expected):
                yield f"{what} too often: {', '.join(surplus[:5])}"
