"""The places where the explorer takes over from the world: store, clock, identifiers, chance."""

import random
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..documents import RESERVED, from_document
from ..errors import ConfigurationError
from ..inbox_store import Operation, Refused, StoredDocument
from ..records import Record, Status, Stored
from .ledger import Ledger
from .machine import Machine
from .plain import PlainEffects
from .process import Call
from .scenario import CONSUMER, KEY, InboxUnderTest, StoreUnderTest
from .truth import Broken


class ExploredClock:
    """Virtual time; `now` and `monotonic` are the same, and the store's clock too."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now(self) -> float:
        return self._machine.now

    def monotonic(self) -> float:
        return self._machine.now

    async def sleep(self, seconds: float) -> None:
        await self._machine.pause(seconds)


class ExploredStore:
    """A store whose every call is a point of the schedule, and whose writes go into the ledger."""

    name = "explored"

    def __init__(
        self, machine: Machine, ledger: Ledger, store: StoreUnderTest, *, fences: bool
    ) -> None:
        """``fences``: the store honours etags, so that a request with a stale one can be forgotten."""
        self._machine = machine
        self._ledger = ledger
        self._store = store
        self._fences = fences

    async def read(self, consumer: str, key: str) -> Stored | None:
        call = Call("read", lambda: at_once(self._store.read(consumer, key)))
        stored: Stored | None = await self._machine.call(call)
        return stored

    async def insert(self, record: Record) -> Stored | None:
        def apply() -> Stored | None:
            return self._wrote(record, at_once(self._store.insert(record)), insert=True)

        call = Call(f"insert {_described(record)}", apply, ("insert", told_of(record)))
        stored: Stored | None = await self._machine.call(call)
        return stored

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is Status.IN_PROGRESS and not self._machine.running().cut_off:
            try:
                self._ledger.renewal_asked(record, self._machine.now)
            except Broken as broken:
                self._machine.break_(str(broken))

        def apply() -> Stored | None:
            return self._wrote(record, at_once(self._store.replace(record, etag)))

        call = Call(
            f"replace {_described(record)}",
            apply,
            ("replace", told_of(record)),
            lambda: self._is_moot(etag),
        )
        stored: Stored | None = await self._machine.call(call)
        return stored

    async def delete(self, record: Record, etag: str) -> bool:
        def apply() -> bool:
            deleted = at_once(self._store.delete(record, etag))
            if deleted:
                self._ledger.deleted(record.owner)
            return deleted

        call = Call("delete", apply, ("delete",), lambda: self._is_moot(etag))
        deleted: bool = await self._machine.call(call)
        return deleted

    async def close(self) -> None:
        return None

    def _wrote(
        self, record: Record, stored: Stored | None, *, insert: bool = False
    ) -> Stored | None:
        if stored is not None:
            self._ledger.wrote(record, stored.etag, self._machine.now, insert=insert)
        return stored

    def _is_moot(self, etag: str) -> bool:
        held = self._ledger.held
        return self._fences and (held is None or held.etag != etag)


class ExploredInbox:
    """An inbox store whose every call is a point of the schedule."""

    name = "explored"

    def __init__(
        self, machine: Machine, ledger: Ledger, effects: PlainEffects, store: InboxUnderTest
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._effects = effects
        self._store = store

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        call = Call("read", lambda: at_once(self._store.read(partition, id_)))
        found: StoredDocument | None = await self._machine.call(call)
        return found

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        marker = record_in(operations[0].document)

        def apply() -> Refused | None:
            refused = at_once(self._store.commit(partition, operations))
            if refused is None:
                self._ledger.committed(marker, len(self._store.documents()), self._machine.now)
                self._effects.committed(self._ledger.runs[marker.owner])
            return refused

        call = Call("commit", apply, ("commit",), lambda: self._ledger.held is not None)
        refused: Refused | None = await self._machine.call(call)
        return refused

    async def close(self) -> None:
        return None


def at_once[T](call: Coroutine[Any, Any, T]) -> T:
    """The answer of a store call that never waits."""
    try:
        call.send(None)
    except StopIteration as answered:
        value: T = answered.value
        return value
    call.close()
    raise ConfigurationError("only a store whose calls never wait can be explored")


@contextmanager
def deterministic(running: "Running") -> Iterator[None]:
    """Make identifiers and chance the same in every replay, for as long as schedules run.

    Owners get the number of their message and delivery; a random number is always the upper end.
    """

    def owner() -> uuid.UUID:
        process = running.machine.running()
        count = len(process.owners) + 1
        made = uuid.UUID(int=process.index << 64 | process.number << 32 | count)
        process.owners.append(made.hex)
        process.patient_from = running.machine.now  # whoever decides anew waits anew
        return made

    replaced = [
        (uuid, "uuid4", owner),
        (random, "uniform", lambda low, high: high),
        (random, "random", lambda: 0.999),
    ]
    originals = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in originals:
            setattr(module, name, value)


class Running:
    """Names the machine of the schedule that runs."""

    machine: Machine


def delivery_of(owner: str) -> tuple[int, int]:
    """Which message, and which delivery of it, an owner's identifier belongs to."""
    number = int(owner, 16)
    return number >> 64, (number >> 32) & 0xFFFFFFFF


def record_in(document: Mapping[str, Any]) -> Record:
    """The record of a marker."""
    return from_document(document, consumer=CONSUMER, key=KEY, prefix=RESERVED)


def stored_in(found: StoredDocument) -> Stored:
    """A marker as a record."""
    return Stored(record=record_in(found.document), etag=found.etag, age=found.age)


def told_of(record: Record) -> tuple[Any, ...]:
    """What of a record bears on what follows: all but its owner, its times and its result.

    Whose it is, and how old, is told beside it; times and results in it are never decided by.
    """
    return (
        record.status,
        record.attempt,
        record.fingerprint,
        record.lease,
        record.settle,
        tuple((step.name, step.done, step.result) for step in record.steps),
        record.failure_reason,
        record.schema,
    )


def _described(record: Record) -> str:
    return f"{record.status}, attempt {record.attempt}"
