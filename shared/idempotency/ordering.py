"""By nature: an absolute state is applied only if it is newer. There is no record and no marker.

Where a message carries the whole state of one thing and a version that grows with it, the thing's own
document tells a duplicate (equal version) and a message that was overtaken (older version: `stale`).
Versions may have gaps. Every write is conditional: create-if-absent, or If-Match on what was read.
"""

import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from .attempt import Attempt, current_attempt
from .clock import Clock, SystemClock, jittered
from .errors import (
    ConfigurationError,
    PermanentFailure,
    StoreUnavailable,
    TransientFailure,
)
from .events import HandlerRan, Observer, ignore, observed, undisturbed
from .fencing import answered
from .keys import checked, presentable
from .outcomes import of_refusal
from .records import Cause, Delivery, Handled, Outcome, Policy
from .results import ResultCodec
from .running import run_unleased
from .states import Document, Standing, State, StateStore, StoredState, standing

_TURNS = 12
"""How often a state meets a conflict before its delivery comes back later."""
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


class VersionGuard:
    """A named unit of work that applies absolute states, each only if it is newer.

    The handler says by `apply_if_newer` which state its message carries; it has no other effect, so
    it may run for duplicates too, and its result is the same each time. A read comes first, since most
    messages change what is known: fresh 2 trips, duplicate or stale 1. ``create_first`` suits ids that
    are mostly new: fresh 1, an update 3, duplicate or stale 2.

    Equal versions are duplicates whatever they contain: the source says that nothing has changed, and
    a release that writes one more property must not call an old redelivery a mismatch. Without a record
    it cannot be known who wrote a state: one of equal version *and* content counts as ours if a write
    of this very delivery was left unanswered. A twin that wrote the same at that moment, or an answer
    lost where the SDK retries by itself, makes the count wrong by one, never the state.

    Deleting a document forgets its version; keep a tombstone where an old message may still come.
    Of the policy only ``deadline`` and ``lease`` (for how long an unanswered call is issued again)
    matter: nothing is kept that could expire.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        *,
        create_first: bool = False,
        policy: Policy | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a version guard needs a name: metrics and logs go by it")
        self.name = name
        self.policy = policy or Policy()
        self._store = store
        self._create_first = create_first
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Run the handler, and apply its state unless what is there is as new.

        ``wait`` makes no difference: there is no attempt in flight. `in_flight` only says that others
        kept changing the document. Raises StoreUnavailable, and whatever the handler raised.
        """
        return await observed(
            self._handle(delivery, work),
            consumer=self.name,
            delivery=delivery,
            observer=self._observer,
            clock=self._clock,
        )

    async def apply(self, state: State) -> Outcome:
        """Apply a state on behalf of another consumer's handler, which may be run again.

        `processed`, `duplicate` or `stale`; its delivery goes by the state's id. Raises StoreUnavailable,
        whatever a Change raises, and TransientFailure when others kept changing the document.
        """

        async def propose() -> None:
            apply_if_newer(state)

        handled = await self.handle(Delivery(key=state.id), propose, ResultCodec(type(None)))
        match handled.outcome:
            case Outcome.FAILED:
                raise PermanentFailure(handled.reason, handled.description)
            case Outcome.IN_FLIGHT:
                raise TransientFailure(
                    f"{self.name}, id {presentable(state.id)!r}: others kept changing the document",
                    retry_after=handled.retry_after,
                )
        return handled.outcome

    async def _handle[R](self, delivery: Delivery, work: Callable[[], Awaitable[R]]) -> Handled[R]:
        checked(delivery.key)
        try:
            state, result = await self._run(delivery, work)
            outcome, description = await self._applied(state, delivery)
        except PermanentFailure as failure:
            return of_refusal(failure, attempt=1)
        if outcome is Outcome.IN_FLIGHT:
            return Handled(outcome=outcome, retry_after=1.0)
        cause = None
        if outcome is Outcome.DUPLICATE:
            cause = Cause.REDELIVERY if delivery.redelivered else Cause.RESEND
        return Handled(
            outcome=outcome, result=result, cause=cause, description=description, attempt=1
        )

    async def _run[R](
        self, delivery: Delivery, work: Callable[[], Awaitable[R]]
    ) -> tuple[State, R]:
        began = self._clock.monotonic()
        attempt = Attempt(
            consumer=self.name,
            key=delivery.key,
            number=1,
            owner=uuid.uuid4().hex,
            deadline=began + self.policy.deadline,
        )
        proposed: list[State] = []

        def begin() -> None:
            _current.set(_Proposal(attempt.owner, proposed))

        try:
            result = await run_unleased(work, attempt, self._clock, begin=begin)
        finally:
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        if not proposed:
            raise ConfigurationError(
                f"{self.name}: the handler ended without apply_if_newer(); a version guard would "
                "acknowledge a message that changed nothing"
            )
        return proposed[0], result

    async def _applied(self, state: State, delivery: Delivery) -> tuple[Outcome, str]:
        application = _Application(self._store, self._clock, state, self.policy.lease)
        pause = 0.0
        current = None
        if delivery.redelivered or not self._create_first:
            current = await application.read()
        for _ in range(_TURNS):
            there = current.version_in(state.version_in) if current else None
            match standing(state.version, there):
                case Standing.NEWER:
                    if await application.written_over(current):
                        return Outcome.PROCESSED, ""
                case Standing.EQUAL if application.is_ours(current):
                    return Outcome.PROCESSED, ""
                case Standing.EQUAL:
                    return Outcome.DUPLICATE, ""
                case Standing.OLDER:
                    return Outcome.STALE, f"version {state.version} came after version {there}"
            # something else is there by now; those who met in it must not meet again
            await self._clock.sleep(jittered(pause))
            pause = min(pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
            current = await application.read()
        return Outcome.IN_FLIGHT, ""


class _Application:
    """One state on its way into the store; remembers what it wrote without being answered."""

    def __init__(self, store: StateStore, clock: Clock, state: State, within: float) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._within = within
        self._unanswered: list[Document] = []

    async def read(self) -> StoredState | None:
        return await answered(
            lambda: self._store.read(self._state.id), self._clock, within=self._within
        )

    async def written_over(self, current: StoredState | None) -> bool:
        """Write the state where ``current`` is; False when something else is there by now."""
        document = self._state.following(current.document if current else None)

        async def write() -> bool:
            try:
                if current is None:
                    return await self._store.create(self._state.id, document)
                return await self._store.replace(self._state.id, document, current.etag)
            except StoreUnavailable:
                self._unanswered.append(document)
                raise

        return await answered(write, self._clock, within=self._within)

    def is_ours(self, current: StoredState | None) -> bool:
        """Whether what is there is, as far as can be known, an unanswered write of ours."""
        return current is not None and any(
            _plain(current.document) == _plain(document) for document in self._unanswered
        )


def _plain(document: Document) -> dict[str, Any]:
    """A document as any store gives it back: JSON values, without those that are null."""
    plain = msgspec.json.decode(msgspec.json.encode(document))
    return {name: value for name, value in plain.items() if value is not None}


class _Proposal(NamedTuple):
    owner: str
    states: list[State]


# with the owner of its attempt: a consumer protected within a handler proposes for itself
_current: ContextVar[_Proposal] = ContextVar("idempotency_proposal")


def apply_if_newer(state: State) -> None:
    """Say which state the handler's message carries; it is applied when the handler has ended.

    Once in a handler that is protected by a VersionGuard; raises ConfigurationError anywhere else.
    """
    proposal = _current.get(None)
    if proposal is None or current_attempt().owner != proposal.owner:
        raise ConfigurationError(
            "apply_if_newer() works only inside a handler protected by a VersionGuard"
        )
    if proposal.states:
        raise ConfigurationError(
            "a handler applies one state: two documents are not written in one step"
        )
    proposal.states.append(state)
