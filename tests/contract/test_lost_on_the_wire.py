"""The connection breaks below the real SDKs: the server does the write and nobody hears of it.

The Table SDK sends some writes again by itself, and meets its own write; the Cosmos DB SDK raises.
In both cases the outcome is right and the effect happens once.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from azure.cosmos.aio import CosmosClient
from azure.data.tables.aio import TableClient

from local.services.azurite import Azurite
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from shared.idempotency import (
    Consumer,
    Delivery,
    Event,
    Inbox,
    InboxStore,
    Outcome,
    Policy,
    ResultCodec,
    Store,
    current_unit,
)
from shared.idempotency.events import Fenced
from shared.idempotency.stores.cosmos import CosmosStore
from shared.idempotency.stores.cosmos_inbox import CosmosInbox
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_inbox import TableInbox
from tests.contract.proxy import Loss, Proxy, losing
from tests.contract.services import RUN, orders_container, records_container
from tests.unit.doubles import HandlerFailed, Wire, WiredInbox, WiredStore

pytestmark = pytest.mark.integration

CODEC: ResultCodec[str] = ResultCodec(str)
LOSSES: list[Loss] = ["request", "answer"]


class Line:
    """A store and an inbox of one service, at the other end of a proxy."""

    def __init__(self, proxy: Proxy, store: Store, inbox: InboxStore) -> None:
        self.proxy = proxy
        self.wire = Wire()
        self.events: list[Event] = []
        self.store = store
        self.key = uuid.uuid4().hex
        policy = Policy(memory=0.0)
        self.consumer = Consumer(
            "lossy", WiredStore(store, self.wire), policy=policy, observer=self.events.append
        )
        self.inbox = Inbox("lossy", WiredInbox(inbox, self.wire), policy=policy)
        self.effects = 0

    def lose(self, operation: str, loss: Loss) -> None:
        self.wire.before[operation] = losing(self.proxy, loss)

    def delivery(self, *, redelivered: bool = False) -> Delivery:
        return Delivery(key=self.key, fingerprint="json1:aa", redelivered=redelivered)

    async def work(self) -> str:
        self.effects += 1
        return f"effect {self.effects}"

    def fenced(self) -> list[Event]:
        return [event for event in self.events if isinstance(event, Fenced)]


async def _table_line(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Line:
    azurite: Azurite = request.getfixturevalue("azurite")
    proxy = await stack.enter_async_context(Proxy(azurite.ports.table))
    through = azurite.connection_string.replace(f":{azurite.ports.table}/", f":{proxy.port}/")
    records = TableClient.from_connection_string(through, f"t{RUN}lossy")
    orders = TableClient.from_connection_string(through, f"t{RUN}lossyinbox")
    await stack.enter_async_context(records)
    await stack.enter_async_context(orders)
    return Line(proxy, TableStore(records), TableInbox(orders))


async def _cosmos_line(stack: AsyncExitStack, request: pytest.FixtureRequest) -> Line:
    server: CosmosServer = request.getfixturevalue("cosmos")
    proxy = await stack.enter_async_context(Proxy(server.port))
    client = await stack.enter_async_context(
        CosmosClient(f"https://127.0.0.1:{proxy.port}/", server.key, **CLIENT_OPTIONS)
    )
    inbox = CosmosInbox(orders_container(client), partition_property="order_id")
    return Line(proxy, CosmosStore(records_container(client)), inbox)


@pytest.fixture(params=["table", "cosmos"])
async def line(request: pytest.FixtureRequest) -> AsyncIterator[Line]:
    async with AsyncExitStack() as stack:
        open_line = _table_line if request.param == "table" else _cosmos_line
        line = await open_line(stack, request)
        # whatever has to be created is there, and the connection has been used
        await line.consumer.handle(Delivery(key=uuid.uuid4().hex), line.work, CODEC)
        await line.inbox.handle(Delivery(key=uuid.uuid4().hex), line.work, CODEC)
        line.effects = 0
        line.wire.trips.clear()
        yield line


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operation", ["insert", "replace"])
async def test_given_a_loss_at_claim_or_completion_then_it_is_processed_once(
    line: Line, operation: str, loss: Loss
) -> None:
    line.lose(operation, loss)
    handled = await line.consumer.handle(line.delivery(), line.work, CODEC)
    assert line.proxy.lost == [loss]
    assert (handled.outcome, handled.result, handled.attempt) == (
        Outcome.PROCESSED,
        "effect 1",
        1,
    )
    again = await line.consumer.handle(line.delivery(redelivered=True), line.work, CODEC)
    assert (again.outcome, again.result) == (Outcome.DUPLICATE, "effect 1")
    assert line.effects == 1
    assert line.fenced() == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_given_a_loss_at_the_release_then_the_key_is_free(line: Line, loss: Loss) -> None:
    async def fails() -> str:
        raise HandlerFailed

    line.lose("delete", loss)
    with pytest.raises(HandlerFailed):
        await line.consumer.handle(line.delivery(), fails, CODEC)
    assert line.proxy.lost == [loss]
    assert await line.store.read("lossy", line.key) is None
    assert line.fenced() == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_given_a_loss_at_a_read_then_it_is_read_again(line: Line, loss: Loss) -> None:
    await line.consumer.handle(line.delivery(), line.work, CODEC)
    line.lose("read", loss)
    again = await line.consumer.handle(line.delivery(redelivered=True), line.work, CODEC)
    assert line.proxy.lost == [loss]
    assert again.outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("loss", LOSSES)
async def test_given_a_loss_at_an_inbox_commit_then_it_was_processed_not_a_duplicate(
    line: Line, loss: Loss
) -> None:
    async def places() -> str:
        current_unit().create("line-1", {"sku": "a"})
        return await line.work()

    line.lose("commit", loss)
    handled = await line.inbox.handle(line.delivery(), places, CODEC)
    assert line.proxy.lost == [loss]
    assert (handled.outcome, handled.result) == (Outcome.PROCESSED, "effect 1")
    again = await line.inbox.handle(line.delivery(redelivered=True), places, CODEC)
    assert (again.outcome, again.result) == (Outcome.DUPLICATE, "effect 1")
    assert line.effects == 1
