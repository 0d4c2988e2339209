"""What fulfilment puts into its transaction, however large the order."""

import json
from typing import Any

import pytest

from blueprints.fulfilment import fulfil_in_unit
from shared.idempotency import (
    Handled,
    Inbox,
    MalformedContent,
    Message,
    Outbox,
    Outcome,
    Policy,
    ResultCodec,
    TransientFailure,
    current_unit,
)
from shared.idempotency.documents import business_of
from shared.idempotency.inbox_store import Operation
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.order_events import OrderEvent
from shared.orders import Order, parsed
from tests.unit.doubles import a_delivery

NOTHING: ResultCodec[None] = ResultCodec(type(None))
ID = "order-1"


def line(number: int, quantity: int = 1) -> dict[str, Any]:
    return {"sku": f"sku-{number}", "quantity": quantity, "unit_price": "1.50"}


class Warehouse:
    """The app's two consumers of one order, over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryInbox()
        self.sent: list[Message] = []
        outbox = Outbox(self.store, self._send)
        policy = Policy(memory=0.0)
        self._places = Inbox("process_order", self.store, entity_is_marker=True, policy=policy)
        self._fulfils = Inbox("fulfil_order", self.store, outbox=outbox, policy=policy)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def place(self, *lines: dict[str, Any], order_id: str = ID) -> None:
        content = {"order_id": order_id, "customer_id": "c", "currency": "EUR", "lines": lines}
        order = parsed(json.dumps(content).encode(), Order)

        async def work() -> None:
            current_unit().mark(order.document())

        await self._places.handle(a_delivery(key=order_id), work, NOTHING)

    async def fulfil(self, order_id: str = ID, **delivery: Any) -> Handled[None]:
        body = json.dumps({"order_id": order_id, "warehouse": "HAM-1"}).encode()
        delivery.setdefault("key", order_id)
        return await self._fulfils.handle(
            a_delivery(body=body, **delivery),
            lambda: fulfil_in_unit(body, "order-events"),
            NOTHING,
        )

    def entries(self, kind: str) -> list[dict[str, Any]]:
        documents = self.store.documents().values()
        return [entry for d in documents if d.get("type") == kind for entry in d["entries"]]

    async def order(self, order_id: str = ID) -> dict[str, Any]:
        found = await self.store.read(order_id, order_id)
        assert found is not None
        document = business_of(found.document)
        assert document is not None
        return document


async def test_order_lines_reservations_and_event_come_together() -> None:
    warehouse = Warehouse()
    await warehouse.place(line(1, 2), line(2), line(1, 3))
    assert (await warehouse.fulfil()).outcome is Outcome.PROCESSED
    order = await warehouse.order()
    assert (order["fulfilment_status"], order["version"]) == ("fulfilled", 2)
    assert warehouse.entries("lines") == list(order["lines"])
    assert warehouse.entries("reservations") == [
        {"sku": "sku-1", "quantity": 5},
        {"sku": "sku-2", "quantity": 1},
    ]
    [message] = warehouse.sent
    event = parsed(message.body, OrderEvent)
    assert (event.type, event.version, event.subject) == ("OrderFulfilled", 2, ID)
    assert (message.destination, message.session_id) == ("order-events", ID)


async def test_the_largest_order_fits_into_one_transaction() -> None:
    warehouse = Warehouse()
    await warehouse.place(*(line(number) for number in range(5000)))
    assert (await warehouse.fulfil()).outcome is Outcome.PROCESSED
    assert len(warehouse.entries("lines")) == len(warehouse.entries("reservations")) == 5000


@pytest.mark.parametrize("order_id", ["lines-001", "reservations-001", "order-1"])
async def test_an_order_may_be_called_as_its_documents_could_be(order_id: str) -> None:
    warehouse = Warehouse()
    await warehouse.place(line(1), order_id=order_id)
    assert (await warehouse.fulfil(order_id)).outcome is Outcome.PROCESSED


async def test_a_request_that_overtakes_its_order_comes_back() -> None:
    warehouse = Warehouse()
    with pytest.raises(TransientFailure):
        await warehouse.fulfil()
    await warehouse.place(line(1))
    assert (await warehouse.fulfil(redelivered=True)).outcome is Outcome.PROCESSED


async def test_a_second_request_under_a_key_that_is_not_the_orders_is_refused() -> None:
    """Its marker would lie in another partition, where no one looks for the order's."""
    warehouse = Warehouse()
    await warehouse.place(line(1))
    with pytest.raises(MalformedContent) as refused:
        await warehouse.fulfil(key="another")
    assert refused.value.reason == "KeyMismatch"


async def test_an_order_that_changes_meanwhile_is_read_again_and_keeps_its_change() -> None:
    warehouse = Warehouse()
    await warehouse.place(line(1))
    commit = warehouse.store.commit

    async def paid_meanwhile(partition: str, operations: tuple[Operation, ...]) -> Any:
        warehouse.store.commit = commit  # type: ignore[method-assign]
        paid = Operation(kind="patch", id=ID, document={"payment_status": "paid"})
        assert await commit(ID, (paid,)) is None
        return await commit(partition, operations)

    warehouse.store.commit = paid_meanwhile  # type: ignore[method-assign]
    assert (await warehouse.fulfil()).outcome is Outcome.PROCESSED
    assert len(warehouse.sent) == 1
    order = await warehouse.order()
    assert (order["payment_status"], order["fulfilment_status"]) == ("paid", "fulfilled")
