"""Entities that are their own markers, updated under a version of their own: they stay markers."""

import pytest

from shared.idempotency import (
    ConfigurationError,
    Delivery,
    Inbox,
    Outcome,
    PermanentFailure,
    ResultCodec,
    State,
    TransientFailure,
    VersionGuard,
    current_unit,
)
from shared.idempotency.documents import DELETED, RESERVED
from shared.idempotency.entities import EntityStates
from shared.idempotency.inbox_store import Operation
from shared.idempotency.keys import storage_id
from shared.idempotency.states import Document
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock

HOSTILE = "a/b#c?d \U0001f9fe"
NOTHING: ResultCodec[None] = ResultCodec(type(None))


class Orders:
    """Orders made by an inbox, and two sources that change them, each under its own version."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock)
        self.inbox = Inbox("place", self.store, entity_is_marker=True, clock=self.clock)
        states = EntityStates(self.store)
        self.payments = VersionGuard("pay", states, clock=self.clock)
        self.shipments = VersionGuard("ship", states, clock=self.clock)

    async def place(self, key: str, fingerprint: str = "raw1:aa") -> Outcome:
        async def make() -> None:
            current_unit().mark({"total": "5", "version": 9})

        delivery = Delivery(key=key, fingerprint=fingerprint)
        return (await self.clock.run(self.inbox.handle(delivery, make, NOTHING))).outcome

    async def pay(self, key: str, version: int, status: str = "paid") -> Outcome:
        def change(order: Document | None) -> Document:
            if order is None:
                raise TransientFailure("not yet")
            return {**order, "payment": status}

        state = State(id=key, version=version, document=change, version_in="payment_version")
        return await self.clock.run(self.payments.apply(state))

    async def ship(self, key: str, version: int) -> Outcome:
        def change(order: Document | None) -> Document:
            return {**(order or {}), "shipped": True}

        state = State(id=key, version=version, document=change, version_in="shipment_version")
        return await self.clock.run(self.shipments.apply(state))

    async def order(self, key: str) -> Document:
        found = await self.store.read(key, storage_id(key))
        assert found is not None
        return found.document


@pytest.mark.parametrize("key", ["o-1", HOSTILE])
async def test_given_an_updated_entity_when_its_message_comes_again_then_it_is_still_a_duplicate(
    key: str,
) -> None:
    orders = Orders()
    await orders.place(key)
    before = await orders.order(key)

    assert await orders.pay(key, 3) is Outcome.PROCESSED

    assert await orders.place(key) is Outcome.DUPLICATE
    after = await orders.order(key)
    assert after == {**before, "payment": "paid", "payment_version": 3}
    orders.inbox._recent._known.clear()
    assert await orders.place(key) is Outcome.DUPLICATE
    assert await orders.place(key, "raw1:bb") is Outcome.MISMATCH


async def test_given_two_sources_when_each_changes_it_then_neither_holds_the_other_up() -> None:
    orders = Orders()
    await orders.place("o-1")
    assert await orders.pay("o-1", 50) is Outcome.PROCESSED
    assert await orders.ship("o-1", 2) is Outcome.PROCESSED, "2 is new to this source"
    assert await orders.pay("o-1", 50) is Outcome.DUPLICATE
    assert await orders.pay("o-1", 49, "failed") is Outcome.STALE
    assert await orders.pay("o-1", 51, "refunded") is Outcome.PROCESSED
    assert await orders.ship("o-1", 1) is Outcome.STALE

    order = await orders.order("o-1")
    assert {n: v for n, v in order.items() if not n.startswith(RESERVED)} == {
        "total": "5",
        "version": 9,
        "payment": "refunded",
        "payment_version": 51,
        "shipped": True,
        "shipment_version": 2,
    }


async def test_given_no_entity_when_a_state_comes_then_the_change_says_whether_one_may_come() -> (
    None
):
    orders = Orders()
    with pytest.raises(TransientFailure):
        await orders.pay("o-1", 1)
    with pytest.raises(ConfigurationError, match="made by its inbox"):
        await orders.ship("o-1", 1)
    assert orders.store.documents() == {}
    await orders.place("o-1")
    assert await orders.pay("o-1", 1) is Outcome.PROCESSED


async def test_given_an_entity_that_was_deleted_when_a_state_comes_then_it_does_not_come_back() -> (
    None
):
    orders = Orders()
    await orders.place("o-1")
    gone = {**await orders.order("o-1"), DELETED: True}
    await orders.store.commit("o-1", (Operation(kind="upsert", id="o-1", document=gone),))

    with pytest.raises(TransientFailure):
        await orders.pay("o-1", 1)

    assert await orders.order("o-1") == gone


async def test_given_a_change_that_loses_reserved_properties_when_it_is_written_then_it_is_refused() -> (
    None
):
    orders = Orders()
    await orders.place("o-1")
    before = await orders.order("o-1")
    lost = State(id="o-1", version=1, document=lambda order: {"total": "6"}, version_in="v")
    with pytest.raises(ConfigurationError, match=f"{RESERVED}owner"):
        await orders.clock.run(orders.payments.apply(lost))
    assert await orders.order("o-1") == before


async def test_given_a_change_that_refuses_when_it_is_applied_then_the_refusal_is_told() -> None:
    orders = Orders()
    await orders.place("o-1")

    def refuse(order: Document | None) -> Document:
        raise PermanentFailure("AmountMismatch")

    state = State(id="o-1", version=1, document=refuse, version_in="payment_version")
    with pytest.raises(PermanentFailure, match="AmountMismatch"):
        await orders.clock.run(orders.payments.apply(state))


async def test_given_others_keep_changing_it_when_a_state_is_applied_then_it_is_for_another_time() -> (
    None
):
    class Busy(EntityStates):
        async def replace(self, id_: str, document: Document, etag: str) -> bool:
            return False

    orders = Orders()
    await orders.place("o-1")
    orders.payments = VersionGuard("pay", Busy(orders.store), clock=orders.clock)
    with pytest.raises(TransientFailure):
        await orders.pay("o-1", 1)


def test_given_a_change_that_sets_another_version_when_it_follows_then_it_is_refused() -> None:
    there = {"v": 1, "w": 2}
    state = State(
        id="o", version=5, document=lambda order: {**(order or {}), "v": 4}, version_in="v"
    )
    with pytest.raises(ConfigurationError, match="property v"):
        state.following(there)
    absolute = State(id="o", version=5, document={"v": 1}, version_in="v")
    with pytest.raises(ConfigurationError, match="property v"):
        absolute.following(there)
