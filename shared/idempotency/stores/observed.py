"""Times every round trip of a store and tells an observer."""

from collections.abc import Awaitable
from typing import Any, Protocol

from ..clock import Clock, SystemClock
from ..errors import StoreUnavailable
from ..events import Observer, StoreCalled
from ..inbox_store import Operation, Refused, StoredDocument
from ..outbox import OutboxStore, Parcel
from ..records import Record, Stored
from ..store import Store


def _result_of(operation: str, answer: Any) -> str:
    match operation, answer:
        case "read", None:
            return "absent"
        case "commit" | "announce" | "forget", None:
            return "ok"
        case _, None | False | Refused():
            return "refused"
    return "ok"


class _Anything(Protocol):
    """What every store has, whatever it keeps."""

    @property
    def name(self) -> str: ...

    async def close(self) -> None: ...


class Observed[S: _Anything]:
    """A store whose round trips are events; everything else is the inner store's."""

    def __init__(self, store: S, observer: Observer, clock: Clock | None = None) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        return self._store.name

    async def close(self) -> None:
        await self._store.close()

    async def _timed[T](self, operation: str, call: Awaitable[T]) -> T:
        """Await one round trip and tell the observer how long it took and what came of it."""
        began = self._clock.monotonic()
        result = "unavailable"
        try:
            answer = await call
            result = _result_of(operation, answer)
            return answer
        except StoreUnavailable:
            raise
        except BaseException:
            result = "error"
            raise
        finally:
            duration = self._clock.monotonic() - began
            self._observer(
                StoreCalled(store=self.name, operation=operation, result=result, duration=duration)
            )


class ObservedStore(Observed[Store]):
    """A store whose round trips are events; everything else is the inner store's."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        return await self._timed("read", self._store.read(consumer, key))

    async def insert(self, record: Record) -> Stored | None:
        return await self._timed("insert", self._store.insert(record))

    async def replace(self, record: Record, etag: str) -> Stored | None:
        return await self._timed("replace", self._store.replace(record, etag))

    async def delete(self, record: Record, etag: str) -> bool:
        return await self._timed("delete", self._store.delete(record, etag))


class ObservedInbox(Observed[OutboxStore]):
    """An inbox store with its outbox whose calls are events; everything else is the inner store's."""

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        return await self._timed("read", self._store.read(partition, id_))

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        return await self._timed("commit", self._store.commit(partition, operations))

    @property
    def announces(self) -> bool:
        return self._store.announces

    async def announce(self, parcel: Parcel) -> None:
        await self._timed("announce", self._store.announce(parcel))

    async def forget(self, parcel: Parcel) -> None:
        await self._timed("forget", self._store.forget(parcel))

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        return await self._timed("due", self._store.due(now, limit))

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        return await self._timed("postpone", self._store.postpone(parcel, until))
