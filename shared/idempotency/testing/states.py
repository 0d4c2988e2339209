"""The contract that every store of guarded states has to keep."""
# ruff: noqa: S101 - an assertion is what a test does

import asyncio
import uuid
from typing import Any

from ..errors import MalformedContent
from ..states import MAX_VERSION, StateStore, StoredState
from .records import HOSTILE_KEYS


class StateStoreContract:
    """What every `StateStore` promises."""

    async def test_what_is_created_is_read_back(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        content = document(
            MAX_VERSION, text="é😀", number=-7, ratio=0.5, yes=True, nested={"a": [1, {"b": "c"}]}
        )

        assert await store.create(id_, content)

        stored = await found(store, id_)
        assert stored.document == content
        assert stored.version == MAX_VERSION

    async def test_what_is_not_there_is_none(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        assert await store.read(id_) is None

    async def test_what_is_not_there_is_not_replaced(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        await store.create(id_, document())
        etag = (await found(store, id_)).etag
        assert await store.replace(uuid.uuid4().hex, document(2), etag) is False

    async def test_of_twenty_concurrent_creations_one_succeeds(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        await store.create(uuid.uuid4().hex, document())  # whatever has to be created is there
        answers = await asyncio.gather(*(store.create(id_, document(n)) for n in range(20)))
        assert answers.count(True) == 1
        assert (await found(store, id_)).version == answers.index(True)

    async def test_of_twenty_concurrent_replacements_one_succeeds(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        await store.create(id_, document())
        etag = (await found(store, id_)).etag
        answers = await asyncio.gather(
            *(store.replace(id_, document(n), etag) for n in range(2, 22))
        )
        assert answers.count(True) == 1
        assert (await found(store, id_)).version == answers.index(True) + 2

    async def test_a_stale_etag_replaces_nothing(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        await store.create(id_, document(1))
        first = await found(store, id_)
        assert await store.replace(id_, document(2), first.etag)
        assert await store.replace(id_, document(3), first.etag) is False
        assert (await found(store, id_)).version == 2

    async def test_a_write_of_the_same_content_still_changes_the_etag(
        self, store: StateStore
    ) -> None:
        id_ = uuid.uuid4().hex
        await store.create(id_, document())
        first = await found(store, id_)
        assert await store.replace(id_, document(), first.etag)
        assert (await found(store, id_)).etag != first.etag

    async def test_a_replacement_leaves_nothing_of_the_old_document_behind(
        self, store: StateStore
    ) -> None:
        id_ = uuid.uuid4().hex
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

    async def test_half_a_surrogate_pair_is_refused_or_comes_back(self, store: StateStore) -> None:
        id_ = uuid.uuid4().hex
        try:
            assert await store.create(id_, document(text="\ud83d"))
        except MalformedContent:
            assert await store.read(id_) is None
        else:
            assert (await found(store, id_)).document["text"] == "\ud83d"


def document(version: int = 1, **more: Any) -> dict[str, Any]:
    """A document of that version."""
    return {"version": version, **more}


async def found(store: StateStore, id_: str) -> StoredState:
    """The document of an id, which has to be there."""
    stored = await store.read(id_)
    assert stored is not None
    return stored
