"""Doubles of the tests: stores that count or fail, a handler that tells what was done to it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

from shared.idempotency import (
    Consumer,
    Delivery,
    Effects,
    Event,
    Handled,
    InboxStore,
    OutboxStore,
    Policy,
    Record,
    ResultCodec,
    Store,
    Stored,
    StoreUnavailable,
)
from shared.idempotency.events import Fenced
from shared.idempotency.inbox_store import Operation, Refused, StoredDocument
from shared.idempotency.outbox import Parcel
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.testing import FakeClock

KEY = "order-1"
SAME, OTHER = "json1:aa", "json1:bb"
CODEC: ResultCodec[str] = ResultCodec(str)

type Loss = Literal["request", "answer"]


class Wire:
    """Between a store and its user: counts round trips, and loses what it is told to lose.

    ``lose`` maps an operation to what its next calls lose, None for nothing; "request": it never
    arrives, "answer": it takes effect and nobody hears of it. ``before`` is awaited before a call of
    that operation arrives.
    """

    def __init__(self) -> None:
        self.trips: list[str] = []
        self.lose: dict[str, list[Loss | None]] = {}
        self.down = False
        self.retry_after: float | None = None
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def carry[T](self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        self.trips.append(operation)
        if before := self.before.pop(operation, None):
            await before()
        losses = self.lose.get(operation)
        loss = losses.pop(0) if losses else None
        if self.down or loss == "request":
            raise StoreUnavailable("the request was lost", retry_after=self.retry_after)
        answer = await call()
        if loss == "answer":
            raise StoreUnavailable("the answer was lost")
        return answer


class WiredStore:
    """A store at the other end of a wire."""

    name = "wired"

    def __init__(self, store: Store, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    async def read(self, consumer: str, key: str) -> Stored | None:
        return await self._wire.carry("read", lambda: self._store.read(consumer, key))

    async def insert(self, record: Record) -> Stored | None:
        return await self._wire.carry("insert", lambda: self._store.insert(record))

    async def replace(self, record: Record, etag: str) -> Stored | None:
        return await self._wire.carry("replace", lambda: self._store.replace(record, etag))

    async def delete(self, record: Record, etag: str) -> bool:
        return await self._wire.carry("delete", lambda: self._store.delete(record, etag))

    async def close(self) -> None:
        await self._store.close()


class WiredInbox:
    """An inbox store with its outbox at the other end of a wire."""

    name = "wired"

    def __init__(self, store: InboxStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    @property
    def announces(self) -> bool:
        return self._outbox.announces

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        return await self._wire.carry("read", lambda: self._store.read(partition, id_))

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        return await self._wire.carry("commit", lambda: self._store.commit(partition, operations))

    async def announce(self, parcel: Parcel) -> None:
        await self._wire.carry("announce", lambda: self._outbox.announce(parcel))

    async def forget(self, parcel: Parcel) -> None:
        await self._wire.carry("forget", lambda: self._outbox.forget(parcel))

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        return await self._wire.carry("due", lambda: self._outbox.due(now, limit))

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        return await self._wire.carry("postpone", lambda: self._outbox.postpone(parcel, until))

    @property
    def _outbox(self) -> OutboxStore:
        return cast("OutboxStore", self._store)

    async def close(self) -> None:
        await self._store.close()


class HandlerFailed(Exception):
    """What the handlers of these tests raise."""


class Effect:
    """A handler whose effect can be counted, and whose course can be steered."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.begun = 0
        self.done = 0
        self.cancelled = 0
        self.seconds = 0.0
        self.error: BaseException | None = None

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self._clock.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        self.done += 1
        return f"result {self.done}"


class Bench:
    """A consumer on a store in memory behind a wire, with a clock moved by hand.

    Two workers share the store: `consumer` and `other`, whose wire is its own.
    """

    def __init__(self, *, effects: Effects | None = None, **policy: Any) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.effects = effects
        self.wire = Wire()
        self.events: list[Event] = []
        self.policy = Policy(**{"memory": 0.0, **policy})
        self.consumer = self.a_consumer(WiredStore(self.store, self.wire))
        self.other = self.a_consumer(self.store)
        self.effect = Effect(self.clock)

    def a_consumer(self, store: Store, name: str = "charge_payment") -> Consumer:
        return Consumer(
            name,
            store,
            policy=self.policy,
            effects=self.effects,
            observer=self.events.append,
            clock=self.clock,
        )

    async def handle(
        self,
        work: Callable[[], Awaitable[str]] | None = None,
        *,
        consumer: Consumer | None = None,
        wait: float | None = None,
        **delivery: Any,
    ) -> Handled[str]:
        """One delivery, with as much time as it needs."""
        return await self.clock.run(
            (consumer or self.consumer).handle(
                a_delivery(**delivery), work or self.effect, CODEC, wait=wait
            )
        )

    def begin(
        self, work: Callable[[], Awaitable[str]] | None = None, **delivery: Any
    ) -> "asyncio.Task[Handled[str]]":
        """One delivery that goes on by itself whenever time passes."""
        return asyncio.create_task(
            self.consumer.handle(a_delivery(**delivery), work or self.effect, CODEC)
        )

    async def stored(self, key: str = KEY) -> Stored | None:
        return await self.store.read("charge_payment", key)

    async def record(self, key: str = KEY) -> Record:
        stored = await self.stored(key)
        assert stored is not None
        return stored.record

    def fenced(self) -> list[str]:
        return [event.operation for event in self.events if isinstance(event, Fenced)]


def a_delivery(**fields: Any) -> Delivery:
    return Delivery(**{"key": KEY, "fingerprint": SAME, **fields})
