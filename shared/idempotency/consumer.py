"""The two-phase form: claim -> run -> complete or release.

For effects outside the store: `in_progress` is recorded before the work, `completed` with the result
after it. Every write is one conditional write; an attempt that was superseded changes nothing.
"""

import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .attempt import Attempt
from .clock import Clock, SystemClock
from .decision import Action, Decision, decide
from .errors import ConfigurationError, DeadlineExceeded, PermanentFailure, StoreUnavailable
from .events import (
    Fenced,
    HandlerRan,
    Observer,
    ResultNotKept,
    TakenOver,
    ignore,
    observed,
)
from .fencing import FencedRecord, answered
from .outcomes import of_duplicate, of_mismatch, of_quarantined, too_old
from .recent import Recent
from .records import Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec
from .running import StillRunning, Stop, Stopped, run_leased
from .store import Store


class Protected(Protocol):
    """A consumer in any form: what an adapter hands deliveries to."""

    @property
    def name(self) -> str: ...

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Do the work unless it was done; the outcome says which."""
        ...


_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_CLAIMS = 6
"""How often a claim is tried when others keep changing the record: then the delivery comes back."""


class Consumer:
    """A named unit of work that has its effect once per key, in the two-phase form.

    ``name`` scopes every key and must stay the same for as long as records are kept: it is explicit,
    never the function's name. One consumer serves any number of concurrent deliveries; it holds no
    state of a single call.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        policy: Policy | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a consumer needs a name: it scopes its deduplication keys")
        self.name = name
        self.policy = policy or Policy()
        self._store = store
        self._observer = observer
        self._clock = clock or SystemClock()
        self._recent = Recent(self._clock, self.policy.memory)
        self._waiting = 0

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Do the work unless it was done; the outcome says which.

        ``wait``: seconds to wait for an attempt in flight, the policy's by default; 0 answers at
        once. Raises StoreUnavailable when the store is down (nothing ran unprotected), and whatever
        the handler raised, after its record was released.
        """
        patience = self.policy.wait if wait is None else wait
        return await observed(
            self._handle(delivery, work, codec, patience),
            consumer=self.name,
            delivery=delivery,
            observer=self._observer,
            clock=self._clock,
        )

    async def _handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        wait: float,
    ) -> Handled[R]:
        expired = too_old(delivery, self.policy, self._clock.now())
        stored = None if delivery.forced else self._recent.find(delivery.key)
        if stored is None and (delivery.redelivered or expired):
            stored = await self._read(delivery)
        if stored is None and expired:
            return expired
        give_up = self._clock.monotonic() + wait
        owner = uuid.uuid4().hex
        pause = _FIRST_PAUSE
        claims = 0
        while True:
            decision = decide(stored, owner=owner, fingerprint=delivery.fingerprint)
            match decision.action:
                case Action.CLAIM | Action.TAKE_OVER | Action.CONTINUE | Action.PROCEED if (
                    claims < _CLAIMS
                ):
                    claims += 1
                    sent_at = self._clock.monotonic()
                    claimed = await self._claimed(decision, stored, delivery, owner)
                    if claimed is not None:
                        fenced = FencedRecord(self._store, self._clock, claimed, claimed_at=sent_at)
                        handled = await self._run(fenced, work, codec)
                        if handled is not None:
                            return handled
                        owner = (
                            uuid.uuid4().hex
                        )  # superseded: whatever comes next is another attempt
                case Action.DUPLICATE if stored is not None:
                    return of_duplicate(stored, delivery, codec, self._clock.now())
                case Action.MISMATCH if stored is not None:
                    return of_mismatch(stored.record)
                case Action.QUARANTINED if stored is not None:
                    return of_quarantined(stored.record)
                case _:
                    left = give_up - self._clock.monotonic()
                    if left <= 0 or not await self._pause(
                        min(pause, left, max(decision.wait, 0.05))
                    ):
                        return Handled(
                            outcome=Outcome.IN_FLIGHT, retry_after=max(decision.wait, 1.0)
                        )
                    pause = min(pause * 2, _LONGEST_PAUSE)
            stored = await self._read(delivery)

    async def _run[R](
        self, fenced: FencedRecord, work: Callable[[], Awaitable[R]], codec: ResultCodec[R]
    ) -> Handled[R] | None:
        """Run and complete a claimed attempt; None when it was superseded meanwhile."""
        attempt = Attempt(
            consumer=self.name,
            key=fenced.record.key,
            number=fenced.record.attempt,
            owner=fenced.record.owner,
            deadline=self._clock.monotonic() + self.policy.deadline,
        )
        began = self._clock.monotonic()
        try:
            result = await run_leased(
                work, attempt, fenced, self._clock, heartbeat=self.policy.heartbeat
            )
        except PermanentFailure as failure:
            return await self._failed(fenced, failure)
        except Stopped as stopped:
            await self._stopped(fenced, stopped)
            return None
        except StillRunning:
            raise
        except BaseException:
            await self._released(fenced)
            raise
        finally:
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        return await self._completed(fenced, result, codec)

    async def _claimed(
        self, decision: Decision, stored: Stored | None, delivery: Delivery, owner: str
    ) -> Stored | None:
        """The record as ours, by one conditional write; None when somebody else was first."""
        if stored is None:
            record = self._fresh(delivery, owner)
            return await self._answered(lambda: self._store.insert(record))
        if decision.action is Action.PROCEED:
            return stored
        taken = stored.record.replaced(
            status=Status.IN_PROGRESS,
            owner=owner,
            attempt=stored.record.attempt + 1,
            lease=self.policy.lease,
            trace_parent=delivery.trace_parent,
        )
        claimed = await self._answered(lambda: self._store.replace(taken, stored.etag))
        if claimed is not None and decision.action is Action.TAKE_OVER:
            self._observer(TakenOver(consumer=self.name, attempt=taken.attempt))
        return claimed

    def _fresh(self, delivery: Delivery, owner: str) -> Record:
        return Record(
            consumer=self.name,
            key=delivery.key,
            status=Status.IN_PROGRESS,
            owner=owner,
            fingerprint=delivery.fingerprint,
            lease=self.policy.lease,
            started_at=self._clock.now(),
            first_sequence_number=delivery.sequence_number,
            trace_parent=delivery.trace_parent,
        )

    async def _completed[R](
        self, fenced: FencedRecord, result: R, codec: ResultCodec[R]
    ) -> Handled[R] | None:
        text = self._kept(fenced.record, result, codec)
        now = self._clock.now()
        completed = await fenced.write(
            status=Status.COMPLETED,
            result=text,
            steps=(),
            finished_at=now,
            expires_at=now + self.policy.retention,
        )
        if not completed:
            self._fenced("complete")
            return None
        self._recent.keep(Stored(record=fenced.record, etag=""))
        return Handled(
            outcome=Outcome.PROCESSED,
            result=None if text is None else codec.decode(text),
            result_kept=text is not None,
            attempt=fenced.record.attempt,
        )

    async def _failed(self, fenced: FencedRecord, failure: PermanentFailure) -> Handled[Any] | None:
        now = self._clock.now()
        kept = await fenced.write(
            status=Status.FAILED,
            failure_reason=failure.reason,
            failure_description=failure.description,
            finished_at=now,
            expires_at=now + self.policy.retention,
        )
        if not kept:
            self._fenced("fail")
            return None
        return Handled(
            outcome=Outcome.FAILED,
            reason=failure.reason,
            description=failure.description,
            attempt=fenced.record.attempt,
        )

    async def _stopped(self, fenced: FencedRecord, stopped: Stopped) -> None:
        """Cancelled by us: superseded deliveries are decided again, a missed deadline comes back."""
        if stopped.why is Stop.FENCED:
            self._fenced("renew")
            return
        if stopped.why is Stop.LEASE_LOST:
            raise StoreUnavailable(
                f"consumer {self.name}: the store did not answer, so the lease could not be renewed"
            )
        if not stopped.still_running:
            await self._released(fenced)
        raise DeadlineExceeded(
            f"consumer {self.name}: the handler did not finish within {self.policy.deadline:g} s"
        )

    async def _released(self, fenced: FencedRecord) -> None:
        """Free the key for a retry; if the store is down, the end of the lease frees it."""
        try:
            if not await fenced.delete():
                self._fenced("release")
        except StoreUnavailable:
            return

    def _kept[R](self, record: Record, result: R, codec: ResultCodec[R]) -> str | None:
        """The result as it will be stored; None when it cannot be: the work is done all the same."""
        try:
            text = codec.encode(result)
        except (TypeError, ValueError) as error:
            cause = f"of no kind that can be kept: {error}"
        else:
            size = len(text.encode())
            if size <= self.policy.max_result_bytes:
                return text
            cause = f"{size} bytes, more than {self.policy.max_result_bytes}"
        self._observer(ResultNotKept(consumer=self.name, key=record.key, cause=cause))
        return None

    def _fenced(self, operation: str) -> None:
        self._observer(Fenced(consumer=self.name, operation=operation))

    async def _pause(self, seconds: float) -> bool:
        """Wait in one of the slots; False when all are taken: one hot key must not starve the rest."""
        if self._waiting >= self.policy.waiting_slots:
            return False
        self._waiting += 1
        try:
            await self._clock.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        finally:
            self._waiting -= 1
        return True

    async def _read(self, delivery: Delivery) -> Stored | None:
        return await self._answered(lambda: self._store.read(self.name, delivery.key))

    async def _answered[T](self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(call, self._clock, within=self.policy.lease)
