"""Points: whose account an event is for, and what it is credited."""

import json
from typing import Any

import pytest

from shared.idempotency import Delivery, Inbox, MalformedContent, Outcome, ResultCodec
from shared.idempotency.keys import parts_of
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.loyalty import ACCOUNT, credit, key_of, partition_of

NOTHING: ResultCodec[None] = ResultCodec(type(None))


def body(event_id: str = "e-1", kind: str = "OrderPlaced", **data: Any) -> bytes:
    event = {"specversion": "1.0", "id": event_id, "source": "/orders", "type": kind}
    more = {"subject": "o-1", "time": "2026-01-01T00:00:00Z", "version": 1, "data": data}
    return json.dumps({**event, **more}).encode()


class Bank:
    """The app's consumer of points over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryInbox()
        self._inbox = Inbox("loyalty_points", self.store, partition=partition_of)

    async def take(self, event: bytes) -> Outcome:
        delivery = Delivery(key=key_of(event))
        return (await self._inbox.handle(delivery, lambda: credit(event), NOTHING)).outcome

    def points(self, customer: str) -> Any:
        return self.store.documents()[customer, ACCOUNT]["points"]


async def test_given_orders_of_one_customer_then_their_points_add_up() -> None:
    bank = Bank()
    await bank.take(body("e-1", customer_id="c/1", total="12.99"))
    await bank.take(body("e-2", customer_id="c/1", total="7.00"))
    await bank.take(body("e-3", customer_id="c/2", total="5"))
    assert await bank.take(body("e-2", customer_id="c/1", total="7.00")) is Outcome.DUPLICATE
    assert (bank.points("c/1"), bank.points("c/2")) == (19, 5)


async def test_given_any_other_event_then_nobody_is_credited() -> None:
    bank = Bank()
    assert await bank.take(body(kind="OrderFulfilled", customer_id="c-1")) is Outcome.PROCESSED
    assert await bank.take(body("e-2", kind="SomethingNew")) is Outcome.PROCESSED
    assert not [id_ for _, id_ in bank.store.documents() if id_ == ACCOUNT]


async def test_given_an_order_without_a_total_then_it_is_told() -> None:
    with pytest.raises(MalformedContent, match=r"data: .*total"):
        await Bank().take(body(customer_id="c-1"))


@pytest.mark.parametrize("total", ["-5", "NaN", "Infinity", "1E+999999", "0.00001"])
async def test_given_a_total_that_is_no_amount_then_it_is_told_and_nobody_is_credited(
    total: str,
) -> None:
    bank = Bank()
    with pytest.raises(MalformedContent, match="from 0 to 10"):
        await bank.take(body(customer_id="c-1", total=total))
    assert bank.store.documents() == {}


def test_a_customer_s_events_share_a_partition_whatever_the_customer_is_called() -> None:
    names = ["c", "c;1:x", "1:c;", "c/1", "12"]
    keys = [key_of(body(customer_id=name)) for name in names]
    assert [partition_of(key) for key in keys] == names
    assert parts_of(keys[0]) == ("c", "/orders", "e-1")
