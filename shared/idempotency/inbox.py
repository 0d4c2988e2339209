"""The inbox form: the marker and the business writes commit in ONE transaction.

The handler builds a unit of work; nothing it does is visible before the commit, so two handlers may
run at once and only one has an effect. The partition is a pure function of the key, fixed before the
handler runs: a second partition would hold a second marker. The marker is operation 0: a conflict
there is a duplicate, a conflict elsewhere is a business conflict.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from .attempt import Attempt, enter
from .clock import Clock, SystemClock, finished_within
from .decision import Action, decide
from .documents import RESERVED, from_document, to_document
from .errors import ConfigurationError, DeadlineExceeded, PermanentFailure
from .events import HandlerRan, Observer, ResultNotKept, ignore, observed, undisturbed
from .evidence import changed_fields as changed_by_evidence
from .evidence import evidence_of
from .fencing import answered
from .inbox_store import InboxStore, Operation, StoredDocument, conflict
from .keys import checked, presentable, storage_id
from .outcomes import of_duplicate, of_mismatch, of_quarantined, of_refusal, too_old
from .recent import Recent
from .records import Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec, kept
from .running import noted
from .unit_of_work import UnitOfWork, enter_unit

_COMMITS = 4
"""How often a commit is tried when the marker was there and then is not."""

type ChangedFields = Callable[[Mapping[str, Any], bytes], tuple[str, ...]]
"""Names the fields in which a recorded business document and a message's body differ."""


class Place(NamedTuple):
    """Where a marker lies."""

    partition: str
    id: str


class _Work[R](NamedTuple):
    """What a handler wants committed, and what its caller is told."""

    unit: UnitOfWork
    result: str | None
    handled: Handled[R]


class Inbox:
    """A named unit of work whose business writes and marker are one transaction.

    ``partition`` gives the partition of a key, the key itself by default; it is pure, and the same for
    as long as markers are kept. Two kinds of marker:

    - plain, beside the data: its id is made of consumer and key, so that several consumers can have
      one in a partition. It is kept for the policy's retention where the store deletes by itself
      (Cosmos DB), and stays where it does not (Table Storage).
    - ``entity_is_marker``: the business entity that the handler makes with ``current_unit().mark()``;
      its id is the key's storage form. It never expires. ``changed_fields`` then gives the evidence of a
      mismatch.

    ``reusable_keys``: a key may be used again after the retention, for keys that callers choose for one
    exchange, as over HTTP; the expired marker is replaced on condition that it is still the same.
    A PermanentFailure writes nothing, not even a marker: a duplicate fails by itself, and a corrected
    message may use the key.
    """

    def __init__(
        self,
        name: str,
        store: InboxStore,
        *,
        partition: Callable[[str], str] | None = None,
        entity_is_marker: bool = False,
        reusable_keys: bool = False,
        changed_fields: ChangedFields | None = None,
        policy: Policy | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a consumer needs a name: it scopes its deduplication keys")
        if entity_is_marker and reusable_keys:
            raise ConfigurationError(f"{name}: a business entity never expires, nor does its key")
        if changed_fields and not entity_is_marker:
            raise ConfigurationError(
                f"{name}: changed_fields compares with the business entity; a plain marker has its own "
                "evidence"
            )
        self.name = name
        self.policy = policy or Policy()
        self._store = store
        self._partition = partition or (lambda key: key)
        self._entity_is_marker = entity_is_marker
        self._reusable_keys = reusable_keys
        self._changed_fields = changed_fields
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()
        self._recent = Recent(self._clock, self.policy.memory)

    def place_of(self, key: str) -> Place:
        """Where the marker of a key lies; raises MissingKey or InvalidKey."""
        checked(key)
        partition = checked(self._partition(key), what="partition of the deduplication key")
        if self._entity_is_marker:
            return Place(partition, storage_id(key))
        # no document of a unit of work, and no entity, has an id of this form
        return Place(partition, f"!{storage_id(self.name)}!{storage_id(key)}")

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
        place = self.place_of(delivery.key)
        owner = uuid.uuid4().hex
        expired = too_old(delivery, self.policy, self._clock.now())
        stored = None if delivery.forced else self._recent.find(delivery.key)
        if stored is None and (delivery.redelivered or expired):
            stored = await self._read(place, delivery.key)
        done: _Work[R] | None = None
        for _ in range(_COMMITS):
            decision = decide(
                stored,
                owner=owner,
                fingerprint=delivery.fingerprint,
                reusable=self._reusable_keys,
            )
            match decision.action:
                case Action.CLAIM if expired:
                    return expired
                case Action.CLAIM:
                    if done is None:
                        try:
                            done = await self._run(delivery, place, owner, work, codec)
                        except PermanentFailure as failure:
                            return of_refusal(failure, attempt=1)
                    if await self._committed(delivery, place, owner, done, over=stored):
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
            stored = await self._read(place, delivery.key)
        return Handled(outcome=Outcome.IN_FLIGHT, retry_after=1.0)

    async def _run[R](
        self,
        delivery: Delivery,
        place: Place,
        owner: str,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
    ) -> _Work[R]:
        """The handler's unit of work, and its result as it will be kept."""
        unit = UnitOfWork(
            delivery.key,
            lambda id_: self._answered(lambda: self._store.read(place.partition, id_)),
            entity_is_marker=self._entity_is_marker,
        )
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
            unit.seal()
            handler.cancel()  # nothing, when it has ended; otherwise it works for nobody
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        result = handler.result()
        if self._entity_is_marker and unit.entity is None:
            raise ConfigurationError(
                f"consumer {self.name}: the handler did not mark() the entity that is to be its marker"
            )
        text, cause = kept(result, codec, self.policy.max_result_bytes)
        if text is None:
            self._observer(ResultNotKept(consumer=self.name, key=delivery.key, cause=cause))
        handled = Handled(
            outcome=Outcome.PROCESSED,
            result=None if text is None else codec.decode(text),
            result_kept=text is not None,
            attempt=1,
        )
        return _Work(unit, text, handled)

    async def _committed(
        self, delivery: Delivery, place: Place, owner: str, done: _Work[Any], *, over: Stored | None
    ) -> bool:
        """Marker and unit of work in one transaction; False when there is a marker, or another by now.

        ``over``: the expired marker that this one takes the place of.
        """
        record = self._record(delivery, owner, done)
        marker = Operation(
            kind="replace" if over else "create",
            id=place.id,
            document=to_document(record, prefix=RESERVED),
            etag=over.etag if over else None,
        )
        operations = (marker, *done.unit.operations)
        refused = await self._answered(lambda: self._store.commit(place.partition, operations))
        if refused is None:
            self._recent.keep(Stored(record=record, etag=""))
            return True
        if refused.index > 0:
            raise conflict(operations[refused.index], refused, index=refused.index - 1)
        return False

    def _record(self, delivery: Delivery, owner: str, done: _Work[Any]) -> Record:
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
        )
        if self._entity_is_marker:
            return record.replaced(extra=done.unit.entity or {})
        return record.replaced(
            expires_at=now + self.policy.retention,
            evidence=evidence_of(delivery.body) if self.policy.evidence else None,
        )

    def _changed(self, record: Record, body: bytes) -> tuple[str, ...]:
        if self._changed_fields is not None:
            return self._changed_fields(record.extra, body)
        return changed_by_evidence(record.evidence, body)

    async def _read(self, place: Place, key: str) -> Stored | None:
        found = await self._answered(lambda: self._store.read(*place))
        return None if found is None else self._marker_in(found, key)

    def _marker_in(self, found: StoredDocument, key: str) -> Stored:
        consumer = found.document.get(f"{RESERVED}consumer")
        if consumer and consumer != presentable(self.name):
            raise ConfigurationError(
                f"consumer {self.name}: the entity of key {presentable(key)!r} is the marker of consumer "
                f"{consumer}. One consumer's marker is the entity; the others need plain ones, or one "
                "would suppress the other"
            )
        record = from_document(
            found.document, consumer=str(consumer or ""), key=key, prefix=RESERVED
        )
        return Stored(record=record, etag=found.etag, age=found.age)

    async def _answered[T](self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(call, self._clock, within=self.policy.lease)
