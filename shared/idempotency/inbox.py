"""The inbox form: the marker and the business writes commit in ONE transaction.

The handler builds a unit of work; nothing it does is visible before the commit, so two handlers may
run at once and only one has an effect. The partition is a pure function of the key, fixed before the
handler runs: a second partition would hold a second marker. The marker is operation 0: a conflict
there is a duplicate, a conflict elsewhere is a business conflict.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from .attempt import Attempt, enter
from .clock import Clock, SystemClock, finished_within
from .decision import Action, decide
from .documents import RESERVED, from_document, to_document
from .errors import ConfigurationError, DeadlineExceeded, PermanentFailure
from .events import HandlerRan, Observer, ResultNotKept, ignore, observed, undisturbed
from .fencing import answered
from .keys import checked, presentable
from .outcomes import of_duplicate, of_mismatch, of_quarantined, of_refusal, too_old
from .recent import Recent
from .records import Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec, kept
from .running import noted
from .unit_of_work import Operation, UnitOfWork, enter_unit

_COMMITS = 4


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A marker as the store holds it: its record, and the business document that carries it."""

    stored: Stored
    document: Mapping[str, Any]


class InboxStore(Protocol):
    """Markers beside the data; each method is one round trip.

    Raises StoreUnavailable as a Store does; after that it is not known whether the commit took
    effect, and it is issued again with the same owner.
    """

    @property
    def name(self) -> str: ...

    async def read(self, key: str) -> Marker | None:
        """Point read of the marker in the key's partition; None when there is none."""
        ...

    async def commit(
        self, key: str, marker: Mapping[str, Any], operations: tuple[Operation, ...]
    ) -> bool:
        """Create the marker and do all operations in one transaction; False when there is a marker.

        Raises BusinessConflict when another operation is refused, MalformedContent when the store
        cannot hold a document or so much in one transaction. In each case nothing was written.
        """
        ...

    async def close(self) -> None: ...


type ChangedFields = Callable[[Mapping[str, Any], bytes], tuple[str, ...]]
"""Names the fields in which a recorded business document and a message's body differ."""


class _Work[R](NamedTuple):
    """What a handler wants committed, and what its caller is told."""

    unit: UnitOfWork
    result: str | None
    handled: Handled[R]


class Inbox:
    """A named unit of work whose business writes and marker are one transaction.

    ``changed_fields`` gives the evidence of a mismatch where the marker is the business entity.
    A PermanentFailure writes nothing, not even a marker: a duplicate fails by itself, and a corrected
    message may use the key.
    """

    def __init__(
        self,
        name: str,
        store: InboxStore,
        *,
        policy: Policy | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
        changed_fields: ChangedFields | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a consumer needs a name: it scopes its deduplication keys")
        self.name = name
        self.policy = policy or Policy()
        self._store = store
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()
        self._changed_fields = changed_fields
        self._recent = Recent(self._clock, self.policy.memory)

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Run the handler and commit its unit of work unless the key has its marker.

        ``wait`` makes no difference: an inbox has no attempt in flight. Raises StoreUnavailable,
        BusinessConflict, MissingKey, and whatever the handler raised; then nothing was written.
        """
        return await observed(
            self._handle(delivery, work, codec),
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
    ) -> Handled[R]:
        checked(delivery.key)
        owner = uuid.uuid4().hex
        expired = too_old(delivery, self.policy, self._clock.now())
        stored = None if delivery.forced else self._recent.find(delivery.key)
        if stored is None and (delivery.redelivered or expired):
            stored = await self._read(delivery.key)
        done: _Work[R] | None = None
        for _ in range(_COMMITS):
            decision = decide(stored, owner=owner, fingerprint=delivery.fingerprint)
            match decision.action:
                case Action.CLAIM if expired:
                    return expired
                case Action.CLAIM:
                    if done is None:
                        try:
                            done = await self._run(delivery, owner, work, codec)
                        except PermanentFailure as failure:
                            return of_refusal(failure, attempt=1)
                    if await self._committed(delivery, owner, done):
                        return done.handled
                case Action.CONFIRM if done is not None:
                    return done.handled
                case Action.DUPLICATE if stored is not None:
                    return of_duplicate(stored, delivery, codec, self._clock.now())
                case Action.MISMATCH if stored is not None:
                    return of_mismatch(stored.record, self._changed(stored.record, delivery.body))
                case Action.QUARANTINED if stored is not None:
                    return of_quarantined(stored.record)
                case _:
                    break  # a newer release's marker: not ours to judge
            stored = await self._read(delivery.key)
        return Handled(outcome=Outcome.IN_FLIGHT, retry_after=1.0)

    async def _run[R](
        self,
        delivery: Delivery,
        owner: str,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
    ) -> _Work[R]:
        """The handler's unit of work, and its result as it will be kept."""
        unit = UnitOfWork(delivery.key)
        began = self._clock.monotonic()
        attempt = Attempt(
            consumer=self.name,
            key=delivery.key,
            number=1,
            owner=owner,
            deadline=began + self.policy.deadline,
        )

        async def run() -> R:
            enter(attempt)
            enter_unit(unit, attempt)
            return await work()

        # a task of its own: the context variables end with it
        handler = asyncio.create_task(run())
        handler.add_done_callback(noted)
        try:
            if not await finished_within(handler, self.policy.deadline, self._clock):
                raise DeadlineExceeded(
                    f"consumer {self.name}: the handler did not finish within "
                    f"{self.policy.deadline:g} s; nothing was written"
                )
        finally:
            handler.cancel()  # nothing, when it has ended; otherwise it works for nobody
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        text, cause = kept(handler.result(), codec, self.policy.max_result_bytes)
        if text is None:
            self._observer(ResultNotKept(consumer=self.name, key=delivery.key, cause=cause))
        handled = Handled(
            outcome=Outcome.PROCESSED,
            result=None if text is None else codec.decode(text),
            result_kept=text is not None,
            attempt=1,
        )
        return _Work(unit, text, handled)

    async def _committed(self, delivery: Delivery, owner: str, done: _Work[Any]) -> bool:
        now = self._clock.now()
        record = Record(
            consumer=self.name,
            key=delivery.key,
            status=Status.COMPLETED,
            owner=owner,
            fingerprint=delivery.fingerprint,
            result=done.result,
            started_at=now,
            finished_at=now,
            first_sequence_number=delivery.sequence_number,
            trace_parent=delivery.trace_parent,
            extra=done.unit.marker,
        )
        marker = to_document(record, prefix=RESERVED)
        operations = tuple(done.unit.operations)
        committed = await answered(
            lambda: self._store.commit(delivery.key, marker, operations),
            self._clock,
            within=self.policy.lease,
        )
        if committed:
            self._recent.keep(Stored(record=record, etag=""))
        return committed

    def _changed(self, record: Record, body: bytes) -> tuple[str, ...]:
        return () if self._changed_fields is None else self._changed_fields(record.extra, body)

    async def _read(self, key: str) -> Stored | None:
        marker = await answered(
            lambda: self._store.read(key), self._clock, within=self.policy.lease
        )
        if marker is None:
            return None
        consumer = marker.stored.record.consumer
        if consumer and consumer != presentable(self.name):
            raise ConfigurationError(
                f"consumer {self.name}: the marker of key {presentable(key)!r} belongs to consumer "
                f"{consumer}. Consumers whose markers lie in one container need keys of their own, "
                "or one would suppress the other"
            )
        return marker.stored


def marker_of(document: Mapping[str, Any], *, key: str, etag: str, age: float) -> Marker:
    """The marker in a stored document, for implementations of InboxStore."""
    consumer = document.get(f"{RESERVED}consumer")
    record = from_document(document, consumer=str(consumer or ""), key=key, prefix=RESERVED)
    return Marker(stored=Stored(record=record, etag=etag, age=age), document=record.extra)
