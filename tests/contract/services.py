"""The stores under contract: one line each, and the services behind them."""

import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient
from azure.data.tables.aio import TableClient

from local.services.azurite import Azurite
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from shared.idempotency import InboxStore, Store
from shared.idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_inbox import CosmosInbox
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_inbox import TableInbox

COSMOS_ACCOUNT = os.environ.get("COSMOS_TEST_ENDPOINT")
TABLES_ACCOUNT = os.environ.get("TABLES_TEST_ENDPOINT")
RUN = uuid.uuid4().hex[:8]
"""In the name of everything this run creates."""

type Opened[S] = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[S]]


@asynccontextmanager
async def table_client(
    request: pytest.FixtureRequest, **options: Any
) -> AsyncIterator[TableClient]:
    """A table of this run in Azurite."""
    azurite: Azurite = request.getfixturevalue("azurite")
    name = f"t{RUN}{options.pop('suffix', '')}"
    async with TableClient.from_connection_string(
        azurite.connection_string, name, **options
    ) as client:
        yield client


@asynccontextmanager
async def cosmos_client(
    request: pytest.FixtureRequest, **options: Any
) -> AsyncIterator[CosmosClient]:
    """A client of the local Cosmos server."""
    server: CosmosServer = request.getfixturevalue("cosmos")
    async with CosmosClient(server.endpoint, server.key, **CLIENT_OPTIONS, **options) as client:
        yield client


def records_container(client: CosmosClient) -> Container:
    """The container of this run for records."""
    return Container(client, database=f"d{RUN}", container="records", partition_path=PARTITION_PATH)


def orders_container(client: CosmosClient) -> Container:
    """The container of this run for markers beside the data."""
    return Container(client, database=f"d{RUN}", container="orders", partition_path="/order_id")


@asynccontextmanager
async def memory_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    yield MemoryStore()


@asynccontextmanager
async def azurite_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with table_client(request) as client:
        yield TableStore(client)


@asynccontextmanager
async def cosmos_server_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with cosmos_client(request) as client:
        yield CosmosStore(records_container(client))


@asynccontextmanager
async def tables_account_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    from azure.identity.aio import DefaultAzureCredential

    async with DefaultAzureCredential() as identity:
        client = TableClient(TABLES_ACCOUNT or "", f"t{RUN}", credential=identity)
        async with client:
            yield TableStore(client)


@asynccontextmanager
async def cosmos_account_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Its database ``idempotency`` and containers must be there: an identity may not create them."""
    from azure.identity.aio import DefaultAzureCredential

    async with (
        DefaultAzureCredential() as identity,
        CosmosClient(COSMOS_ACCOUNT or "", identity) as client,
    ):
        yield CosmosStore(
            Container(
                client,
                database="idempotency",
                container="records",
                partition_path=PARTITION_PATH,
            )
        )


@asynccontextmanager
async def memory_inbox(request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
    yield MemoryInbox()


@asynccontextmanager
async def azurite_inbox(request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
    async with table_client(request, suffix="inbox") as client:
        yield TableInbox(client)


@asynccontextmanager
async def cosmos_server_inbox(request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
    async with cosmos_client(request) as client:
        yield CosmosInbox(orders_container(client), partition_property="order_id")


@asynccontextmanager
async def tables_account_inbox(request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
    from azure.identity.aio import DefaultAzureCredential

    async with DefaultAzureCredential() as identity:
        client = TableClient(TABLES_ACCOUNT or "", f"t{RUN}inbox", credential=identity)
        async with client:
            yield TableInbox(client)


@asynccontextmanager
async def cosmos_account_inbox(request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
    from azure.identity.aio import DefaultAzureCredential

    async with (
        DefaultAzureCredential() as identity,
        CosmosClient(COSMOS_ACCOUNT or "", identity) as client,
    ):
        yield CosmosInbox(
            Container(
                client, database="idempotency", container="orders", partition_path="/order_id"
            ),
            partition_property="order_id",
        )
