"""What the demo sends: orders, and how each of them comes twice. Pure, and the same for a seed."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Self

import msgspec

from shared.orders import Line, Order


class Origin(Enum):
    """Why an order comes more than once; the value is what the report calls it."""

    ONCE = "comes once"
    RESENT_IN_WINDOW = "re-sent within broker's window"
    RESENT_LATER = "re-sent after it"
    RESENT_NEW_ID = "re-sent under a new MessageId"
    OTHER_TRANSPORT = "re-sent through Storage queue"
    HTTP_REPEATED = "HTTP request repeated"
    TWO_AT_ONCE = "two messages at once"
    ACKNOWLEDGEMENT_LOST = "acknowledgement lost"
    LOCK_EXPIRED = "lock expired"
    CONSUMER_KILLED = "consumer killed in the middle"
    ID_REUSED = "id reused for other content"


SHARES: Mapping[Origin, float] = {
    Origin.RESENT_IN_WINDOW: 0.04,
    Origin.RESENT_LATER: 0.03,
    Origin.RESENT_NEW_ID: 0.03,
    Origin.OTHER_TRANSPORT: 0.03,
    Origin.HTTP_REPEATED: 0.03,
    Origin.TWO_AT_ONCE: 0.08,
    Origin.ACKNOWLEDGEMENT_LOST: 0.03,
    Origin.LOCK_EXPIRED: 0.03,
}
"""Parts of all orders; at least one order of each."""

COUNTS: Mapping[Origin, int] = {Origin.CONSUMER_KILLED: 4, Origin.ID_REUSED: 3}
"""Numbers of orders, whatever the size."""

FEWEST = 20
"""Orders below which there would not be some of each origin."""

_GOODS = (("tea", "4.90"), ("mug", "12.00"), ("kettle", "39.50"), ("honey", "6.25"))


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a producer sends it."""

    body: bytes
    message_id: str | None
    deduplication_key: str | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that no consumer can use, and the reason it must be dead-lettered with."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """One order and the origin of its duplicate."""

    order: Order
    origin: Origin

    @property
    def id(self) -> str:
        return self.order.order_id

    def message(self) -> Message:
        """As a producer sends it: the order's id is the message's."""
        return Message(msgspec.json.encode(self.order), self.id)

    def under_new_id(self, suffix: str) -> Message:
        """The same logical message in another message of the broker's."""
        return Message(msgspec.json.encode(self.order), f"{self.id}-{suffix}", self.id)

    def fulfilment(self, suffix: str = "") -> Message:
        """The request to ship it, known by the order's id also in another message."""
        body = msgspec.json.encode({"order_id": self.id, "warehouse": "main"})
        if not suffix:
            return Message(body, self.id)
        return Message(body, f"{self.id}-{suffix}", self.id)

    def altered(self) -> Message:
        """Another content under the same id, by an error of the producer's."""
        first, *others = self.order.lines
        more = msgspec.structs.replace(first, quantity=first.quantity + 1)
        order = msgspec.structs.replace(
            self.order, customer_id="somebody-else", lines=(more, *others)
        )
        return Message(msgspec.json.encode(order), self.id)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Everything that will be sent."""

    orders: tuple[PlannedOrder, ...]
    malformed: tuple[Malformed, ...]

    @classmethod
    def planned(cls, size: int, seed: int) -> Self:
        """`size` orders, at least FEWEST, of which about a third come twice."""
        if size < FEWEST:
            raise ValueError(f"at least {FEWEST} orders are needed to have some of each kind")
        # A plan that can be repeated is the point; nothing here is a secret.
        random_ = random.Random(seed)  # noqa: S311
        origins = [origin for origin, count in _counts(size).items() for _ in range(count)]
        random_.shuffle(origins)
        orders = tuple(
            PlannedOrder(_order(f"ord-{number:05}", random_), origin)
            for number, origin in enumerate(origins, 1)
        )
        return cls(orders, _malformed(_order("ord-without-message-id", random_)))

    def of(self, *origins: Origin) -> tuple[PlannedOrder, ...]:
        """The orders of these origins, in the order of their numbers."""
        return tuple(planned for planned in self.orders if planned.origin in origins)


def batches[T](messages: tuple[T, ...], size: int = 50) -> Iterator[tuple[T, ...]]:
    """The messages in portions that fit into a batch of the broker's."""
    for start in range(0, len(messages), size):
        yield messages[start : start + size]


def _counts(size: int) -> dict[Origin, int]:
    counts = {origin: max(1, round(size * share)) for origin, share in SHARES.items()}
    counts |= COUNTS
    return {Origin.ONCE: size - sum(counts.values()), **counts}


def _order(order_id: str, random_: random.Random) -> Order:
    goods = random_.sample(_GOODS, random_.randint(1, len(_GOODS)))
    return Order(
        order_id=order_id,
        customer_id=f"cust-{random_.randint(1, 40)}",
        currency="EUR",
        lines=tuple(
            Line(sku=sku, quantity=random_.randint(1, 5), unit_price=Decimal(price))
            for sku, price in goods
        ),
    )


def _malformed(order: Order) -> tuple[Malformed, ...]:
    return (
        Malformed(Message(msgspec.json.encode(order), None), "MissingKey"),
        Malformed(Message(b"", "bad-empty"), "EmptyBody"),
        Malformed(Message(b"order: two teas, please", "bad-text"), "MalformedJson"),
        Malformed(Message(b'{"order_id": "bad-schema"}', "bad-schema"), "SchemaViolation"),
    )
