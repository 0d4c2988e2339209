"""What a handler may put into its unit of work, and what becomes of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shared.idempotency import (
    BusinessConflict,
    ConfigurationError,
    Current,
    Inbox,
    MalformedContent,
    Outcome,
    Policy,
    UnitOfWork,
    current_unit,
)
from shared.idempotency.documents import business_of
from shared.idempotency.inbox_store import Operation
from shared.idempotency.stores.memory_inbox import MemoryInbox
from tests.unit.doubles import CODEC, KEY, OTHER, a_delivery

PLACED = {"status": "placed", "total": "9.80"}


class Orders:
    """Two consumers on one partition: one makes the order, which is its marker, one changes it."""

    def __init__(self) -> None:
        self.store = MemoryInbox()
        policy = Policy(memory=0.0)
        self.places = Inbox("process_order", self.store, entity_is_marker=True, policy=policy)
        self.changes = Inbox("fulfil_order", self.store, policy=policy)

    async def placed(self, **delivery: Any) -> Outcome:
        async def place() -> str:
            current_unit().mark(PLACED)
            return "placed"

        return (await self.places.handle(a_delivery(**delivery), place, CODEC)).outcome

    async def changed(
        self, change: Callable[[UnitOfWork, Current], Any], **delivery: Any
    ) -> Outcome:
        async def work() -> str:
            order = await current_unit().read(KEY)
            assert order is not None
            change(current_unit(), order)
            return "changed"

        return (await self.changes.handle(a_delivery(**delivery), work, CODEC)).outcome

    async def order(self) -> dict[str, Any] | None:
        found = await self.store.read(KEY, KEY)
        assert found is not None
        return business_of(found.document)


# -- the business entity stays a marker whatever a unit of work does to it

CHANGES: dict[str, tuple[Callable[[UnitOfWork, Current], Any], dict[str, Any] | None]] = {
    "replaced": (lambda unit, order: unit.replace(order, {"status": "paid"}), {"status": "paid"}),
    "patched": (
        lambda unit, order: unit.patch(KEY, {"status": "paid"}, etag=order.etag),
        {**PLACED, "status": "paid"},
    ),
    "deleted": (lambda unit, order: unit.delete(order), None),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_changed_entity_is_still_the_marker(name: str) -> None:
    orders = Orders()
    change, left = CHANGES[name]
    await orders.placed()
    assert await orders.changed(change) is Outcome.PROCESSED
    assert await orders.order() == left
    assert await orders.placed() is Outcome.DUPLICATE
    assert await orders.placed(redelivered=True) is Outcome.DUPLICATE
    assert await orders.placed(fingerprint=OTHER) is Outcome.MISMATCH
    assert await orders.order() == left


async def test_a_deleted_entity_is_not_there_to_be_read_nor_to_be_made_anew() -> None:
    orders = Orders()
    await orders.placed()
    await orders.changed(lambda unit, order: unit.delete(order))

    async def work() -> str:
        assert await current_unit().read(KEY) is None
        current_unit().create(KEY, {"status": "placed again"})
        return "never"

    again = Inbox("again", orders.store, partition=lambda key: KEY)
    with pytest.raises(BusinessConflict, match=r"create of document 'order-1' was refused \(409\)"):
        await again.handle(a_delivery(key="other"), work, CODEC)


async def test_a_document_that_is_no_marker_is_deleted_for_good() -> None:
    store = MemoryInbox()
    await store.commit(KEY, (Operation(kind="create", id="line-1", document={"sku": "a"}),))

    async def work() -> str:
        line = await current_unit().read("line-1")
        assert line is not None
        current_unit().delete(line)
        return "deleted"

    inbox = Inbox("fulfil_order", store)
    await inbox.handle(a_delivery(), work, CODEC)
    assert set(store.documents()) == {tuple(inbox.place_of(KEY))}


@pytest.mark.parametrize("change", ["replace", "delete", "patch"])
async def test_what_was_changed_by_others_since_it_was_read_is_a_conflict(change: str) -> None:
    orders = Orders()
    await orders.placed()

    async def work() -> str:
        unit = current_unit()
        order = await unit.read(KEY)
        assert order is not None
        other = Operation(kind="patch", id=KEY, document={"status": "cancelled"})
        assert await orders.store.commit(KEY, (other,)) is None
        match change:
            case "replace":
                unit.replace(order, {"status": "paid"})
            case "delete":
                unit.delete(order)
            case _:
                unit.patch(KEY, {"status": "paid"}, etag=order.etag)
        return "never"

    with pytest.raises(BusinessConflict) as refused:
        await orders.changes.handle(a_delivery(), work, CODEC)
    assert (refused.value.operation, refused.value.status) == (0, 412)
    assert await orders.order() == {**PLACED, "status": "cancelled"}
    assert tuple(orders.changes.place_of(KEY)) not in orders.store.documents()


async def test_a_patch_sets_and_adds() -> None:
    store = MemoryInbox()
    await store.commit(
        KEY, (Operation(kind="create", id="stock", document={"left": 5, "sku": "a"}),)
    )

    async def work() -> str:
        current_unit().patch("stock", {"sku": "b"}, increment={"left": -2, "sold": 2})
        return "patched"

    await Inbox("sell", store).handle(a_delivery(), work, CODEC)
    assert store.documents()[KEY, "stock"] == {"left": 3, "sold": 2, "sku": "b"}


# -- what is refused, before anything is written


async def refused(error: type[Exception], build: Callable[[UnitOfWork], Any], **inbox: Any) -> str:
    store = MemoryInbox()

    async def work() -> str:
        build(current_unit())
        return "never"

    with pytest.raises(error) as raised:
        await Inbox("process_order", store, **inbox).handle(a_delivery(), work, CODEC)
    assert store.documents() == {}
    return str(raised.value)


async def test_more_operations_than_a_transaction_takes_are_refused_naming_the_first() -> None:
    def build(unit: UnitOfWork) -> None:
        for number in range(100):
            unit.create(f"line-{number}", {})

    assert "create of document 'line-99'" in await refused(MalformedContent, build)


async def test_ninety_nine_operations_and_the_marker_are_taken() -> None:
    store = MemoryInbox()

    async def work() -> str:
        for number in range(99):
            current_unit().create(f"line-{number}", {})
        return "done"

    await Inbox("process_order", store).handle(a_delivery(), work, CODEC)
    assert len(store.documents()) == 100


async def test_a_document_is_written_once() -> None:
    def build(unit: UnitOfWork) -> None:
        unit.create("line-1", {})
        unit.upsert("line-1", {})

    assert "upsert of document 'line-1'" in await refused(ConfigurationError, build)


async def test_the_markers_id_is_not_to_be_written_otherwise() -> None:
    told = await refused(
        ConfigurationError, lambda unit: unit.upsert(KEY, {}), entity_is_marker=True
    )
    assert "marker" in told


async def test_there_is_one_marker() -> None:
    def build(unit: UnitOfWork) -> None:
        unit.mark({})
        unit.mark({})

    await refused(ConfigurationError, build, entity_is_marker=True)


async def test_an_entity_that_is_to_be_the_marker_has_to_be_made() -> None:
    def build(unit: UnitOfWork) -> None:
        unit.create("line-1", {})

    assert "did not mark the entity" in await refused(
        ConfigurationError, build, entity_is_marker=True
    )


async def test_a_plain_inbox_makes_its_marker_itself() -> None:
    await refused(ConfigurationError, lambda unit: unit.mark({}))


@pytest.mark.parametrize(
    "build",
    [
        lambda unit: unit.mark({"idempotency_owner": "me"}),
        lambda unit: unit.create("line-1", {"idempotency_owner": "me"}),
        lambda unit: unit.upsert("line-1", {"idempotency_owner": "me"}),
        lambda unit: unit.patch("line-1", {"idempotency_owner": "me"}),
        lambda unit: unit.patch("line-1", increment={"idempotency_attempt": 1}),
        lambda unit: unit.replace(
            Current(id="line-1", document={}, etag="1"), {"idempotency_owner": "me"}
        ),
    ],
)
async def test_reserved_properties_are_refused(build: Callable[[UnitOfWork], Any]) -> None:
    assert "are reserved" in await refused(ConfigurationError, build, entity_is_marker=True)


@pytest.mark.parametrize("id_", ["a/b", "", "!process_order!order-1", "k" * 121, "line 1"])
async def test_ids_that_no_store_holds_are_refused(id_: str) -> None:
    assert repr(id_) in await refused(ConfigurationError, lambda unit: unit.create(id_, {}))


@pytest.mark.parametrize(
    ("fields", "increment"),
    [
        ({}, {}),
        ({f"field{n}": n for n in range(11)}, {}),
        ({"lines": []}, {}),
        ({"note": None}, {}),
        ({"left": 1}, {"left": 1}),
    ],
)
async def test_a_patch_that_not_every_store_can_do_is_refused(
    fields: dict[str, Any], increment: dict[str, int]
) -> None:
    def build(unit: UnitOfWork) -> None:
        unit.patch("stock", fields, increment=increment)

    assert "patch of document 'stock'" in await refused(ConfigurationError, build)


async def test_what_is_left_running_cannot_write_into_a_unit_that_is_committed() -> None:
    """It would be lost without a word."""
    store = MemoryInbox()
    left: list[asyncio.Task[None]] = []
    committed = asyncio.Event()

    async def late(unit: UnitOfWork) -> None:
        await committed.wait()
        unit.create("line-2", {})

    async def work() -> str:
        left.append(asyncio.create_task(late(current_unit())))
        return "done"

    await Inbox("process_order", store).handle(a_delivery(), work, CODEC)
    committed.set()
    with pytest.raises(ConfigurationError, match="the handler has ended"):
        await left[0]
