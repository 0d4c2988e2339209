"""A broker that keeps what it is sent, and consumers that send to it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shared.idempotency import (
    Event,
    Handled,
    Inbox,
    Message,
    Outbox,
    OutboxStore,
    Policy,
    Swept,
    TransientFailure,
    current_unit,
)
from shared.idempotency.inbox_store import Operation, Refused, StoredDocument
from shared.idempotency.outbox import Parcel
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, Wire, WiredInbox, a_delivery

GRACE = 60.0
STORES = {"searched": False, "with pointers": True}
"""How pending messages are found: by a query, as in Cosmos DB, or by pointers, as in Table Storage."""


class Post:
    """A broker: it takes every message, unless it is down."""

    def __init__(self) -> None:
        self.arrived: list[Message] = []
        self.down = False

    async def send(self, message: Message) -> None:
        if self.down:
            raise TransientFailure("the broker is down")
        self.arrived.append(message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.arrived]


class PostBench:
    """A consumer that sends two messages with an order, its store behind a wire, and a broker."""

    def __init__(self, *, announces: bool = False) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock, announces=announces)
        self.wire = Wire()
        self.post = Post()
        self.events: list[Event] = []
        self.outbox = self.an_outbox(WiredInbox(self.store, self.wire))
        self.consumer = self.a_consumer(self.outbox, WiredInbox(self.store, self.wire))
        self.other = self.a_consumer(self.an_outbox(self.store), self.store)

    def an_outbox(self, store: OutboxStore) -> Outbox:
        return Outbox(
            store, self.post.send, grace=GRACE, observer=self.events.append, clock=self.clock
        )

    def a_consumer(self, outbox: Outbox, store: OutboxStore) -> Inbox:
        return Inbox(
            "process_order",
            store,
            entity_is_marker=True,
            outbox=outbox,
            policy=Policy(memory=0.0),
            clock=self.clock,
        )

    async def work(self) -> str:
        unit = current_unit()
        unit.mark({"status": "placed"})
        unit.send("order-events", b"placed", properties={"kind": "OrderPlaced"}, session_id="s")
        unit.send("audit", b"noted")
        return "placed"

    async def handle(self, consumer: Inbox | None = None, **delivery: Any) -> Handled[str]:
        return await self.clock.run(
            (consumer or self.consumer).handle(a_delivery(**delivery), self.work, CODEC)
        )

    async def sweep(self, after: float = GRACE + 1.0) -> Swept:
        """Let time pass, then sweep."""
        await self.clock.advance(after)
        return await self.clock.run(self.outbox.sweep())

    def pending(self) -> int:
        return sum("idempotency_pending" in d for d in self.store.documents().values())


class Caller(Protocol):
    """Decides when, and whether, a call takes effect."""

    async def call[T](self, name: str, call: Callable[[], Awaitable[T]]) -> T: ...


class Line:
    """A store whose every call goes through a caller."""

    name = "line"

    def __init__(self, caller: Caller, store: OutboxStore) -> None:
        self._caller = caller
        self._store = store

    @property
    def announces(self) -> bool:
        return self._store.announces

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        return await self._caller.call("read", lambda: self._store.read(partition, id_))

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        return await self._caller.call("commit", lambda: self._store.commit(partition, operations))

    async def announce(self, parcel: Parcel) -> None:
        await self._caller.call("announce", lambda: self._store.announce(parcel))

    async def forget(self, parcel: Parcel) -> None:
        await self._caller.call("forget", lambda: self._store.forget(parcel))

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        return await self._caller.call("due", lambda: self._store.due(now, limit))

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        return await self._caller.call("postpone", lambda: self._store.postpone(parcel, until))

    async def close(self) -> None:
        return None
