"""Doubles for tests of steps: a provider with books of its own, and workers that can die."""

import asyncio
from typing import Any

from shared.idempotency import (
    Answer,
    CannotTell,
    Consumer,
    DidNotHappen,
    Effects,
    Handled,
    Happened,
    Quarantine,
    Reconcile,
    Record,
    Rerun,
    Store,
    Stored,
    TakeoverPolicy,
    current_attempt,
)
from shared.idempotency.attempt import Attempt
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, Bench, a_delivery

DEADLINE = 10.0
DAY = 24 * 3600.0


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class Life:
    """Whether a worker's process lives."""

    def __init__(self) -> None:
        self.is_over = False

    def end(self) -> None:
        self.is_over = True
        raise Died

    def check(self) -> None:
        if self.is_over:
            raise Died


class MortalStore:
    """A store as one process reaches it."""

    name = "mortal"

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life

    async def read(self, consumer: str, key: str) -> Stored | None:
        self._life.check()
        return await self._store.read(consumer, key)

    async def insert(self, record: Record) -> Stored | None:
        self._life.check()
        return await self._store.insert(record)

    async def replace(self, record: Record, etag: str) -> Stored | None:
        self._life.check()
        return await self._store.replace(record, etag)

    async def delete(self, record: Record, etag: str) -> bool:
        self._life.check()
        return await self._store.delete(record, etag)

    async def close(self) -> None:
        await self._store.close()


class Provider:
    """Charges once per key for as long as it knows the key, and keeps the truth.

    ``next`` holds what happens to the next calls, in turn: "charge and raise", "raise", "charge and
    hang", "hang", "charge and die", "die", "land later" (after `late` seconds, and raise at once).
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.next: list[str] = []
        self.error: BaseException = TimeoutError()
        self.late = 5.0
        self.known: dict[str, str] = {}
        self.charges: list[str] = []
        self.calls: list[str] = []
        self.asked: list[tuple[str, str, int]] = []
        self.cannot_tell = False
        self.is_down = False
        self._landing: set[asyncio.Task[None]] = set()

    async def call(self, key: str, life: Life | None = None) -> str:
        self.calls.append(key)
        fault = self.next.pop(0) if self.next else "charge"
        if fault.startswith("charge"):
            self._charge(key)
        if fault == "land later":
            self._landing.add(asyncio.create_task(self._land(key)))
        if fault.endswith("die"):
            assert life is not None
            life.end()
        if fault.endswith("hang"):
            await self._clock.sleep(DAY)
        if fault.endswith(("raise", "later")):
            raise self.error
        return self.known[key]

    async def reconcile(self, key: str, step: str, attempt: Attempt) -> Answer:
        self.asked.append((key, step, attempt.number))
        if self.is_down:
            raise ConnectionError
        if self.cannot_tell:
            return CannotTell("its books are closed")
        wanted = attempt.downstream_key(step)
        for number, charged in enumerate(self.charges):
            if charged == wanted:
                return Happened(f"receipt {number + 1}")
        return DidNotHappen()

    def forget_keys(self) -> None:
        self.known.clear()

    def _charge(self, key: str) -> None:
        if key not in self.known:
            self.charges.append(key)
            self.known[key] = f"receipt {len(self.charges)}"

    async def _land(self, key: str) -> None:
        await self._clock.sleep(self.late)
        self._charge(key)


class StepBench(Bench):
    """A consumer with steps at one provider; `others` are further workers on the same store."""

    def __init__(self, policy: str = "rerun", *, settle: float = 12.0, **numbers: Any) -> None:
        super().__init__(**numbers)
        self.provider = Provider(self.clock)
        policies: dict[str, TakeoverPolicy] = {
            "rerun": Rerun(provider_key_retention=DAY),
            "rerun then reconcile": Rerun(
                provider_key_retention=60.0, then=Reconcile(self.provider.reconcile)
            ),
            "rerun then quarantine": Rerun(provider_key_retention=60.0),
            "reconcile": Reconcile(self.provider.reconcile),
            "quarantine": Quarantine(),
        }
        self.effects = Effects(policy=policies[policy], settle=settle)
        self.life = Life()
        self.consumer = self.a_worker(self.life)
        self.other = self.a_worker(Life())
        self.names: list[str] = ["charge"]
        self.last: str | None = None
        self.after: Exception | None = None
        self.got: list[Any] = []

    def a_worker(self, life: Life) -> Consumer:
        return self.a_consumer(MortalStore(self.store, life))

    async def work(self, life: Life | None = None) -> str:
        """The handler: its steps in turn, then perhaps an error."""
        attempt = current_attempt()
        for name in self.names:

            async def call(key: str = attempt.downstream_key(name)) -> str:
                return await self.provider.call(key, life or self.life)

            self.got.append(
                await attempt.step(name, call, deadline=DEADLINE, last=name == self.last)
            )
        if self.after is not None:
            raise self.after
        return "paid"

    async def deliver(self, worker: Consumer | None = None, **delivery: Any) -> Handled[str]:
        life = self.life if worker in (None, self.consumer) else Life()
        return await self.clock.run(
            (worker or self.consumer).handle(a_delivery(**delivery), lambda: self.work(life), CODEC)
        )

    async def dies(self, fault: str = "charge and die") -> None:
        """A first delivery, whose process dies in its (next) call."""
        self.provider.next.append(fault)
        try:
            await self.deliver()
        except Died:
            return
        raise AssertionError("it did not die")
