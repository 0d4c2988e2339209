"""Times every round trip of a store of states and tells an observer."""

from ..states import Document, StateStore, StoredState
from .observed import Observed


class ObservedStateStore(Observed[StateStore]):
    """A store of states whose round trips are events; everything else is the inner store's."""

    async def read(self, id_: str) -> StoredState | None:
        return await self._timed("read", self._store.read(id_))

    async def create(self, id_: str, document: Document) -> bool:
        return await self._timed("create", self._store.create(id_, document))

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        return await self._timed("replace", self._store.replace(id_, document, etag))
