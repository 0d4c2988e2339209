"""Consumers with named steps that break one rule each, and a provider that is less than it is said to be."""

import math
from typing import Any

import msgspec

from shared.idempotency import Consumer, Effects, Record, Status, Store, Stored
from shared.idempotency.attempt import Attempt
from shared.idempotency.clock import Clock
from shared.idempotency.decision import Action
from shared.idempotency.effects import Answer, CannotTell, DidNotHappen, Reconcile
from shared.idempotency.exploration import CONSUMER
from shared.idempotency.fencing import FencedRecord
from shared.idempotency.journal import Journal
from shared.idempotency.protected import Protected
from shared.idempotency.records import Policy
from shared.idempotency.steps import Steps
from shared.idempotency.stores.memory import MemoryStore
from tests.exploration.mutants import Passing


class ActsBeforeItIsSettled(Consumer):
    """After a takeover no policy waits until a call of old must have landed."""

    def _steps(self, fenced: FencedRecord, inherited: Status | None) -> Steps | None:
        steps = super()._steps(fenced, inherited)
        if steps is not None:
            steps._settled_at = -math.inf
        return steps


class StartsWithoutALease(Consumer):
    """A step begins however little is left of the lease."""

    def _steps(self, fenced: FencedRecord, inherited: Status | None) -> Steps | None:
        async def ready(step: Any) -> None:
            return None

        steps = super()._steps(fenced, inherited)
        if steps is not None:
            steps._make_ready = ready  # type: ignore[method-assign]
        return steps


class AsksBeforeItTakesOver(Consumer):
    """The provider is asked first, and the takeover written afterwards; the answer is then relied on."""

    async def _claimed(self, decision: Any, stored: Any, delivery: Any, owner: str) -> Any:
        if decision.action is Action.TAKE_OVER and self.effects is not None:
            policy = self.effects.policy
            assert isinstance(policy, Reconcile)
            attempt = Attempt(
                consumer=self.name, key=delivery.key, number=2, owner=owner, deadline=0
            )
            answer = await policy.ask(delivery.key, "charge", attempt)

            async def known(key: str, step: str, attempt: Attempt) -> Answer:
                return answer

            self.effects = msgspec.structs.replace(self.effects, policy=Reconcile(known))
        return await super()._claimed(decision, stored, delivery, owner)


def guesses(store: Store, clock: Clock, policy: Policy, effects: Effects) -> Protected:
    """A consumer for which "cannot tell" is as good as a no."""
    honest = effects.policy
    assert isinstance(honest, Reconcile)

    async def ask(key: str, step: str, attempt: Attempt) -> Answer:
        answer = await honest.ask(key, step, attempt)
        return DidNotHappen() if isinstance(answer, CannotTell) else answer

    guessing = msgspec.structs.replace(effects, policy=Reconcile(ask))
    return Consumer(CONSUMER, store, policy=policy, effects=guessing, clock=clock)


def takes_silence_for_no(store: Store, clock: Clock, policy: Policy, effects: Effects) -> Protected:
    """A consumer for which a call that timed out has had no effect."""
    deaf = msgspec.structs.replace(effects, unknown_effect=lambda error: False)
    return Consumer(CONSUMER, store, policy=policy, effects=deaf, clock=clock)


class ForgetsWhatIsOpen(Passing):
    """A record is deleted when its handler raises, although a step is open."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is not Status.UNCERTAIN:
            return await self._inner.replace(record, etag)
        await self._inner.delete(record, etag)
        return Stored(record=record, etag=etag)


class SettlesAtOnce(Passing):
    """What is uncertain may be taken over at once."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is Status.UNCERTAIN:
            record = record.replaced(settle=0.0)
        return await self._inner.replace(record, etag)


class CallsAgain(Consumer):
    """An attempt does not look at the steps that its record has as done."""

    def _steps(self, fenced: FencedRecord, inherited: Status | None) -> Steps | None:
        steps = super()._steps(fenced, inherited)
        if steps is not None:
            blank = fenced.record.replaced(steps=())
            steps.journal = Journal(blank, taken_over=steps.journal.taken_over)
        return steps


class ForgetsItsSteps(Passing):
    """An attempt that takes over or goes on is not told what was done before."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        held = await self._inner.read(consumer, key)
        if held is None:
            return None
        return msgspec.structs.replace(held, record=held.record.replaced(steps=()))


class QuarantinesWithoutSteps(Passing):
    """A record that is put before a person does not say what is in doubt."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        if record.status is Status.QUARANTINED:
            record = record.replaced(steps=())
        return await self._inner.replace(record, etag)


class RecordsStepsUnfenced(MemoryStore):
    """A step is recorded whatever the etag."""

    async def replace(self, record: Record, etag: str) -> Stored | None:
        held = await self.read(record.consumer, record.key)
        if held is not None and record.steps and record.attempt < held.record.attempt:
            etag = held.etag
        return await super().replace(record, etag)
