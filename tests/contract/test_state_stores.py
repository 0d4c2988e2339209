"""Every store of states keeps the contract. A new one is one more line in STATE_STORES."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.idempotency import ConfigurationError, MalformedContent, StateStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_state import PARTITION_PATH, CosmosStateStore
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.stores.table_state import TableStateStore
from shared.idempotency.testing import StateStoreContract
from shared.idempotency.testing.states import document, found
from tests.contract.services import RUN, Opened, cosmos_client, table_client


@asynccontextmanager
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    yield MemoryStateStore()


@asynccontextmanager
async def azurite_table(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    async with table_client(request, suffix="states") as client:
        yield TableStateStore(client)


@asynccontextmanager
async def cosmos_server(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    async with cosmos_client(request) as client:
        yield CosmosStateStore(
            Container(client, database=f"d{RUN}", container="states", partition_path=PARTITION_PATH)
        )


STATE_STORES: dict[str, Opened[StateStore]] = {
    "memory": memory,
    "azurite": azurite_table,
    "cosmos-server": cosmos_server,
}


@pytest.fixture(params=STATE_STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    async with STATE_STORES[request.param](request) as store:
        yield store


@pytest.fixture
def id_() -> str:
    return uuid.uuid4().hex


@pytest.mark.integration
class TestStateStores(StateStoreContract):
    """The contract, by every store."""


@pytest.mark.integration
@pytest.mark.parametrize("store", ["azurite", "cosmos-server"], indirect=True)
class TestStateStoresOfServices:
    async def test_a_document_too_large_for_the_service_is_refused_as_content(
        self, store: StateStore, id_: str
    ) -> None:
        with pytest.raises(MalformedContent) as refused:
            await store.create(id_, document(text="x" * 3_000_000))
        assert refused.value.reason == "ContentTooLarge"
        assert await store.read(id_) is None

    @pytest.mark.parametrize("name", ["id", "ttl", "PartitionKey", "Timestamp"])
    async def test_a_property_that_is_the_services_own_is_refused_by_name(
        self, store: StateStore, id_: str, name: str
    ) -> None:
        own = {"table": {"PartitionKey", "Timestamp"}, "cosmos": {"id", "ttl"}}[store.name]
        if name in own:
            with pytest.raises(ConfigurationError, match=name):
                await store.create(id_, {**document(), name: "x"})
        else:
            assert await store.create(id_, {**document(), name: "x"})
            assert (await found(store, id_)).document[name] == "x"
