"""Every way to look through records, over the services that keep them."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.data.tables.aio import TableClient

from local.services.azurite import Azurite
from shared.idempotency import Record
from shared.idempotency.documents import RESERVED, to_document
from shared.idempotency.keys import storage_id
from shared.idempotency.scanning import Placement, RecordScan
from shared.idempotency.stores import table_access
from shared.idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_scan import CosmosScan
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_scan import MemoryScan
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_scan import TableScan
from tests.contract.services import cosmos_client

BUSINESS = {"total": "9.80", "lines": [{"sku": "tea"}]}
"""What lies beside a marker in its document."""

type Opened = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager["Shelf"]]


@dataclass(frozen=True)
class Shelf:
    """A scan, and how records come to lie where it looks."""

    scan: RecordScan
    put: Callable[[Record], Awaitable[None]]
    raw: Callable[[str], Awaitable[dict[str, Any]]]
    """The stored document of a key, as the service has it."""


@asynccontextmanager
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    store = MemoryStore()

    async def put(record: Record) -> None:
        assert await store.insert(record)

    async def raw(key: str) -> dict[str, Any]:
        stored = await store.read("contract", key)
        assert stored
        return to_document(stored.record)

    yield Shelf(MemoryScan(store), put, raw)


@asynccontextmanager
async def own_table(request: pytest.FixtureRequest) -> AsyncIterator[TableClient]:
    azurite: Azurite = request.getfixturevalue("azurite")
    name = f"s{uuid.uuid4().hex[:12]}"
    async with TableClient.from_connection_string(azurite.connection_string, name) as table:
        yield table


@asynccontextmanager
async def azurite_dedicated(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with own_table(request) as table:
        store = TableStore(table)

        async def put(record: Record) -> None:
            assert await store.insert(record)

        async def raw(key: str) -> dict[str, Any]:
            hits = table.query_entities("RowKey eq @row", parameters={"row": storage_id(key)})
            return dict(await anext(aiter(hits)))

        yield Shelf(TableScan(table, placement=Placement.DEDICATED), put, raw)


@asynccontextmanager
async def azurite_beside(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    """Markers in partitions of another name than their keys', among business entities."""
    async with own_table(request) as table:
        await table.create_table()

        async def put(record: Record) -> None:
            document = {**BUSINESS, **to_document(record, prefix=RESERVED)}
            partition, row = f"p-{storage_id(record.key)}", f"!m!{storage_id(record.key)}"
            await table.create_entity(table_access.to_entity(partition, row, document))
            await table.create_entity(table_access.to_entity(partition, "a-line", {"kind": "line"}))

        async def raw(key: str) -> dict[str, Any]:
            return dict(await table.get_entity(f"p-{storage_id(key)}", f"!m!{storage_id(key)}"))

        yield Shelf(TableScan(table, placement=Placement.BESIDE_DATA), put, raw)


@asynccontextmanager
async def cosmos_dedicated(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with cosmos_client(request) as client:
        container = Container(
            client,
            database=f"s{uuid.uuid4().hex[:12]}",
            container="records",
            partition_path=PARTITION_PATH,
        )
        store = CosmosStore(container)

        async def put(record: Record) -> None:
            assert await store.insert(record)

        async def raw(key: str) -> dict[str, Any]:
            address = f"contract~{storage_id(key)}"
            return dict(await container.items.read_item(address, address))

        yield Shelf(CosmosScan(container, placement=Placement.DEDICATED), put, raw)


@asynccontextmanager
async def cosmos_beside(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with cosmos_client(request) as client:
        database = await client.create_database(f"s{uuid.uuid4().hex[:12]}")
        await database.create_container("orders", PartitionKey("/order_id"), default_ttl=-1)
        container = Container(
            client, database=database.id, container="orders", partition_path="/order_id"
        )

        async def put(record: Record) -> None:
            place = {"id": storage_id(record.key), "order_id": f"p-{storage_id(record.key)}"}
            document = {**BUSINESS, **to_document(record, prefix=RESERVED), **place}
            await container.items.create_item(document)
            await container.items.create_item({"id": "a-line", "order_id": place["order_id"]})

        async def raw(key: str) -> dict[str, Any]:
            id_ = storage_id(key)
            return dict(await container.items.read_item(id_, f"p-{id_}"))

        scan = CosmosScan(container, placement=Placement.BESIDE_DATA, partition_property="order_id")
        yield Shelf(scan, put, raw)


SHELVES: dict[str, Opened] = {
    "memory": memory,
    "table-dedicated": azurite_dedicated,
    "table-beside": azurite_beside,
    "cosmos-dedicated": cosmos_dedicated,
    "cosmos-beside": cosmos_beside,
}
