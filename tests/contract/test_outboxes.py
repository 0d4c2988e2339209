"""Every store with an outbox keeps its contract. A new one is one more line in OUTBOXES."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.idempotency import OutboxStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_inbox import CosmosInbox
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.stores.table_inbox import TableInbox
from shared.idempotency.testing import OutboxContract
from tests.contract.services import Opened, cosmos_client, table_client


@asynccontextmanager
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
    yield MemoryInbox()


@asynccontextmanager
async def memory_with_pointers(request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
    yield MemoryInbox(announces=True)


@asynccontextmanager
async def azurite(request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
    async with table_client(request, suffix=uuid.uuid4().hex[:8]) as client:
        yield TableInbox(client)


@asynccontextmanager
async def cosmos_server(request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
    async with cosmos_client(request) as client:
        own = Container(
            client,
            database=f"outbox{uuid.uuid4().hex[:8]}",
            container="orders",
            partition_path="/order_id",
        )
        yield CosmosInbox(own, partition_property="order_id")


OUTBOXES: dict[str, Opened[OutboxStore]] = {
    "memory": memory,
    "memory-with-pointers": memory_with_pointers,
    "azurite": azurite,
    "cosmos-server": cosmos_server,
}


@pytest.mark.integration
class TestOutboxes(OutboxContract):
    @pytest.fixture(params=OUTBOXES)
    async def store(self, request: pytest.FixtureRequest) -> AsyncIterator[OutboxStore]:
        async with OUTBOXES[request.param](request) as store:
            yield store
