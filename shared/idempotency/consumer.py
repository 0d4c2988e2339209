"""The two-phase form: claim -> run -> complete or release.

For effects outside the store: `in_progress` is recorded before the work, `completed` with the result
after it. Every write is one conditional write; an attempt that was superseded changes nothing.
"""

import functools
import uuid
from collections.abc import Awaitable, Callable

from .attempt import Attempt
from .clock import Clock, SystemClock
from .conclusion import Conclusion
from .decision import Action, Decision, decide
from .effects import Effects, name_of
from .errors import ConfigurationError
from .events import Fenced, HandlerRan, Observer, TakenOver, ignore, observed, undisturbed
from .evidence import changed_fields, evidence_of
from .fencing import FencedRecord, answered
from .keys import checked
from .outcomes import of_duplicate, of_mismatch, of_quarantined, too_old
from .recent import Recent
from .records import SCHEMA, Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec
from .running import Stop, run_leased
from .step_numbers import settle_of
from .steps import WHOLE_HANDLER, Steps
from .store import Store
from .waiting import Patience, WaitingRoom

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
        reusable_keys: bool = False,
        policy: Policy | None = None,
        effects: Effects | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        """``effects`` says what to do about effects outside the store whose fate is unknown; without it
        the handler has no steps, and whatever it does is done again after a crash.

        ``reusable_keys``: a key may be used again after the retention, for keys that callers choose for
        one exchange, as over HTTP; the expired record is replaced on condition that it is the same.
        """
        if not name:
            raise ConfigurationError("a consumer needs a name: it scopes its deduplication keys")
        self.name = name
        self.policy = policy or Policy()
        self.effects = effects
        if effects is not None and settle_of(effects, self.policy) >= self.policy.deadline:
            raise ConfigurationError(
                f"consumer {name}: settle ({settle_of(effects, self.policy):g} s) must be below deadline "
                f"({self.policy.deadline:g} s): an attempt that takes over waits so long"
            )
        self._store = store
        self._reusable_keys = reusable_keys
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()
        self._recent = Recent(self._clock, self.policy.memory)
        self._waiting = WaitingRoom(self.policy.waiting_slots)

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
        once. Raises StoreUnavailable when the store is down (nothing ran unprotected), MissingKey or
        InvalidKey, DeadlineExceeded, and whatever the handler raised, after its record was released.
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
        checked(delivery.key)
        expired = too_old(delivery, self.policy, self._clock.now())
        stored = None if delivery.forced else self._recent.find(delivery.key)
        if stored is None and (delivery.redelivered or expired):
            stored = await self._read(delivery)
        patience = Patience(self._waiting, self._clock, wait)
        owner = uuid.uuid4().hex
        asked_at = self._clock.monotonic()  # of the first claim by this owner
        claims = 0
        inherited: Status | None = None  # of the record that was taken over
        while True:
            decision = decide(
                stored,
                owner=owner,
                fingerprint=delivery.fingerprint,
                reusable=self._reusable_keys,
            )
            match decision.action:
                case Action.CLAIM if expired:
                    return expired
                case Action.CLAIM | Action.TAKE_OVER | Action.CONTINUE | Action.PROCEED if (
                    claims < _CLAIMS
                ):
                    claims += 1
                    if decision.action is not Action.PROCEED:
                        asked_at = self._clock.monotonic()
                        is_takeover = decision.action is Action.TAKE_OVER and stored is not None
                        inherited = stored.record.status if stored and is_takeover else None
                    claimed = await self._claimed(decision, stored, delivery, owner)
                    if claimed is not None:
                        fenced = FencedRecord(
                            self._store, self._clock, claimed, claimed_at=asked_at
                        )
                        handled = await self._run(fenced, work, codec, inherited)
                        if handled is not None:
                            return handled
                        # superseded: whatever comes next is another attempt
                        owner = uuid.uuid4().hex
                        patience = Patience(self._waiting, self._clock, wait)
                case Action.DUPLICATE | Action.CONFIRM if stored is not None:
                    return of_duplicate(stored, delivery, codec, self._clock.now())
                case Action.MISMATCH if stored is not None:
                    changed = changed_fields(stored.record.evidence, delivery.body)
                    return of_mismatch(stored.record, changed)
                case Action.QUARANTINED if stored is not None:
                    return of_quarantined(stored.record)
                case _:
                    if not await patience.wait(decision.wait):
                        return Handled(
                            outcome=Outcome.IN_FLIGHT, retry_after=max(decision.wait, 1.0)
                        )
            stored = await self._read(delivery)

    async def _claimed(
        self, decision: Decision, stored: Stored | None, delivery: Delivery, owner: str
    ) -> Stored | None:
        """The record as ours, by one conditional write; None when somebody else was first."""
        if stored is None:
            record = self._fresh(delivery, owner)
            return await self._answered(lambda: self._store.insert(record))
        if decision.action is Action.CLAIM:
            anew = self._fresh(delivery, owner)
            return await self._answered(lambda: self._store.replace(anew, stored.etag))
        if decision.action is Action.PROCEED:
            return stored
        taken = stored.record.replaced(
            status=Status.IN_PROGRESS,
            owner=owner,
            attempt=stored.record.attempt + 1,
            lease=self.policy.lease,
            trace_parent=delivery.trace_parent,
            schema=SCHEMA,
        )
        claimed = await self._answered(lambda: self._store.replace(taken, stored.etag))
        if claimed is not None and decision.action is Action.TAKE_OVER:
            policy = name_of(self.effects.policy) if self.effects else "rerun"
            self._observer(TakenOver(consumer=self.name, attempt=taken.attempt, policy=policy))
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
            evidence=evidence_of(delivery.body) if self.policy.evidence else None,
        )

    async def _run[R](
        self,
        fenced: FencedRecord,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        inherited: Status | None,
    ) -> Handled[R] | None:
        """Run a claimed attempt to its conclusion; None when it was superseded meanwhile."""
        if fenced.lease_left() < self.policy.lease / 2 and not await fenced.renew():
            # the claim took long, and others were quicker
            self._observer(Fenced(consumer=self.name, operation="renew"))
            return None
        began = self._clock.monotonic()
        steps = self._steps(fenced, inherited)
        attempt = Attempt(
            consumer=self.name,
            key=fenced.record.key,
            number=fenced.record.attempt,
            owner=fenced.record.owner,
            deadline=began + self.policy.deadline,
            trace_parent=fenced.record.trace_parent,
            steps=steps,
        )
        if steps is not None and self.effects is not None and self.effects.whole_handler:
            longest = self.policy.deadline
            work = functools.partial(
                steps.run, attempt, WHOLE_HANDLER, work, codec, deadline=longest, last=True
            )
        run = await run_leased(work, attempt, fenced, self._clock, heartbeat=self.policy.heartbeat)
        self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        conclusion = Conclusion(
            fenced, run, codec, self.policy, self._observer, self._clock, steps=steps
        )
        try:
            handled = await conclusion.written()
        finally:
            if run.stop is Stop.CANCELLED and run.cause is not None:
                raise run.cause
        if handled is not None and handled.outcome is Outcome.PROCESSED:
            self._recent.keep(Stored(record=fenced.record, etag=""))
        return handled

    def _steps(self, fenced: FencedRecord, inherited: Status | None) -> Steps | None:
        """The attempt's steps; after a takeover no policy acts before a call of old must have landed.

        An uncertain record was not taken over before that.
        """
        if self.effects is None:
            return None
        now = self._clock.monotonic()
        settle = settle_of(self.effects, self.policy)
        return Steps(
            fenced,
            self.effects,
            self.policy,
            self._observer,
            self._clock,
            taken_over=inherited is not None,
            settled_at=now + settle if inherited is Status.IN_PROGRESS else now,
        )

    async def _read(self, delivery: Delivery) -> Stored | None:
        return await self._answered(lambda: self._store.read(self.name, delivery.key))

    async def _answered[T](self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(call, self._clock, within=self.policy.lease)
