"""Times every round trip of a store of states and tells an observer."""

from collections.abc import Awaitable

from ..clock import Clock, SystemClock
from ..events import Observer
from ..states import Document, StateStore, StoredState
from .observed import timed


class ObservedStateStore:
    """A store of states whose round trips are events; everything else is the inner store's."""

    def __init__(self, store: StateStore, observer: Observer, clock: Clock | None = None) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        return self._store.name

    async def read(self, id_: str) -> StoredState | None:
        return await self._timed("read", self._store.read(id_))

    async def create(self, id_: str, document: Document) -> bool:
        return await self._timed("create", self._store.create(id_, document))

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        return await self._timed("replace", self._store.replace(id_, document, etag))

    async def close(self) -> None:
        await self._store.close()

    async def _timed[T](self, operation: str, call: Awaitable[T]) -> T:
        return await timed(call, self.name, operation, self._observer, self._clock)
