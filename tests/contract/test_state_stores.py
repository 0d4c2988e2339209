"""Every store of states keeps the contract. A new one is one more line in STATE_STORES."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.idempotency import ConfigurationError, MalformedContent, StateStore
from shared.idempotency.states import MAX_VERSION, StoredState
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_state import PARTITION_PATH, CosmosStateStore
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.stores.table_state import TableStateStore
from shared.idempotency.testing import HOSTILE_KEYS
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


def document(version: int = 1, **more: Any) -> dict[str, Any]:
    return {"version": version, **more}


async def found(store: StateStore, id_: str) -> StoredState:
    stored = await store.read(id_)
    assert stored is not None
    return stored


@pytest.fixture(params=STATE_STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    async with STATE_STORES[request.param](request) as store:
        yield store


@pytest.fixture
def id_() -> str:
    return uuid.uuid4().hex


@pytest.mark.integration
class TestStateStores:
    async def test_what_is_created_is_read_back(self, store: StateStore, id_: str) -> None:
        content = document(
            MAX_VERSION, text="é😀", number=-7, ratio=0.5, yes=True, nested={"a": [1, {"b": "c"}]}
        )

        assert await store.create(id_, content)

        stored = await found(store, id_)
        assert stored.document == content
        assert stored.version == MAX_VERSION

    async def test_what_is_not_there_is_none(self, store: StateStore, id_: str) -> None:
        assert await store.read(id_) is None

    async def test_what_is_not_there_is_not_replaced(self, store: StateStore, id_: str) -> None:
        await store.create(id_, document())
        etag = (await found(store, id_)).etag
        assert await store.replace(uuid.uuid4().hex, document(2), etag) is False

    async def test_of_twenty_concurrent_creations_one_succeeds(
        self, store: StateStore, id_: str
    ) -> None:
        await store.create(uuid.uuid4().hex, document())  # whatever has to be created is there
        answers = await asyncio.gather(*(store.create(id_, document(n)) for n in range(20)))
        assert answers.count(True) == 1
        assert (await found(store, id_)).version == answers.index(True)

    async def test_of_twenty_concurrent_replacements_one_succeeds(
        self, store: StateStore, id_: str
    ) -> None:
        await store.create(id_, document())
        etag = (await found(store, id_)).etag
        answers = await asyncio.gather(
            *(store.replace(id_, document(n), etag) for n in range(2, 22))
        )
        assert answers.count(True) == 1
        assert (await found(store, id_)).version == answers.index(True) + 2

    async def test_a_stale_etag_replaces_nothing(self, store: StateStore, id_: str) -> None:
        await store.create(id_, document(1))
        first = await found(store, id_)
        assert await store.replace(id_, document(2), first.etag)
        assert await store.replace(id_, document(3), first.etag) is False
        assert (await found(store, id_)).version == 2

    async def test_a_write_of_the_same_content_still_changes_the_etag(
        self, store: StateStore, id_: str
    ) -> None:
        await store.create(id_, document())
        first = await found(store, id_)
        assert await store.replace(id_, document(), first.etag)
        assert (await found(store, id_)).etag != first.etag

    async def test_a_replacement_leaves_nothing_of_the_old_document_behind(
        self, store: StateStore, id_: str
    ) -> None:
        await store.create(id_, document(1, old="old", nested={"old": 1}))
        await store.replace(id_, document(2, new="new"), (await found(store, id_)).etag)
        assert (await found(store, id_)).document == document(2, new="new")

    async def test_hostile_ids_are_documents_of_their_own(self, store: StateStore) -> None:
        run = uuid.uuid4().hex[:8]
        ids = [f"{key}{run}" for key in HOSTILE_KEYS]
        for number, id_ in enumerate(ids):
            assert await store.create(id_, document(number)), ascii(id_)
        for number, id_ in enumerate(ids):
            assert (await found(store, id_)).version == number, ascii(id_)

    async def test_half_a_surrogate_pair_is_refused_or_comes_back(
        self, store: StateStore, id_: str
    ) -> None:
        try:
            assert await store.create(id_, document(text="\ud83d"))
        except MalformedContent:
            assert await store.read(id_) is None
        else:
            assert (await found(store, id_)).document["text"] == "\ud83d"


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
