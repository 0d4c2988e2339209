"""The inbox form: the marker and the business writes commit in ONE transaction.

The handler builds a unit of work; nothing it does is visible before the commit, so two handlers may
run at once and only one has an effect. The partition is a pure function of the key, fixed before the
handler runs: a second partition would hold a second marker. The marker is operation 0: a conflict
there is a duplicate, a conflict elsewhere is a business conflict.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from .attempt import Attempt
from .clock import Clock, SystemClock
from .decision import Action, decide
from .errors import BusinessConflict, ConfigurationError, PermanentFailure
from .events import HandlerRan, Observer, ResultNotKept, ignore, observed, undisturbed
from .fencing import answered
from .inbox_store import InboxStore, conflict
from .markers import ChangedFields, Markers, Place
from .outbox import Parcel, message_id
from .outcomes import of_duplicate, of_mismatch, of_quarantined, of_refusal, too_old
from .recent import Recent
from .records import Delivery, Handled, Outcome, Policy, Stored
from .relay import Outbox
from .results import ResultCodec, kept
from .running import run_unleased
from .unit_of_work import UnitOfWork, enter_unit

_COMMITS = 4
"""How often a commit is tried when the marker was there and then is not."""
_RUNS = 4
"""How often a handler runs in one delivery when others keep changing what it reads."""


class _Work[R](NamedTuple):
    """What a handler wants committed and sent, and what its caller is told."""

    unit: UnitOfWork
    result: str | None
    handled: Handled[R]
    parcel: Parcel | None = None
    """Its messages, announced; None when there are none."""


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

    ``outbox``, on the same store, lets the handler send with its unit of work. ``reusable_keys``: a
    key may be used again after the retention, for keys that callers choose for one exchange, as over
    HTTP; the expired marker is replaced on condition that it is still the same.
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
        outbox: Outbox | None = None,
        changed_fields: ChangedFields | None = None,
        policy: Policy | None = None,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a consumer needs a name: it scopes its deduplication keys")
        if entity_is_marker and reusable_keys:
            raise ConfigurationError(
                f"consumer {name}: reusable_keys does not go with entity_is_marker: a business entity never "
                "expires, nor does its key"
            )
        self.name = name
        self.policy = policy or Policy()
        self._store = store
        self._markers = Markers(
            name,
            partition=partition,
            entity_is_marker=entity_is_marker,
            changed_fields=changed_fields,
            policy=self.policy,
        )
        self._reusable_keys = reusable_keys
        self._outbox = outbox
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()
        self._recent = Recent(self._clock, self.policy.memory)

    def place_of(self, key: str) -> Place:
        """Where the marker of a key lies; raises MissingKey or InvalidKey."""
        return self._markers.place_of(key)

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Run the handler and commit its unit of work unless the key has its marker.

        ``wait`` makes no difference: an inbox has no attempt in flight. A handler whose documents others
        changed since it read them runs again at once, a few times. Raises StoreUnavailable,
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
        conflicts = 0
        for _ in range(_COMMITS + _RUNS):
            decision = decide(
                stored,
                owner=owner,
                fingerprint=delivery.fingerprint,
                reusable=self._reusable_keys,
            )
            if done is not None and decision.action not in (Action.CLAIM, Action.CONFIRM):
                await self._withdrawn(done)
            match decision.action:
                case Action.CLAIM if expired:
                    return expired
                case Action.CLAIM:
                    if done is None:
                        try:
                            done = await self._run(delivery, place, owner, work, codec)
                        except PermanentFailure as failure:
                            found = await self._read(place, delivery.key)
                            if found is None or (stored is not None and found.etag == stored.etag):
                                return of_refusal(failure, attempt=1)
                            stored = found  # it refused what an earlier delivery did: a duplicate
                            continue
                        done = await self._announced(delivery, place, owner, done)
                    try:
                        if await self._committed(delivery, place, owner, done, over=stored):
                            return await self._relayed(done)
                    except BusinessConflict:
                        conflicts += 1
                        await self._withdrawn(done)
                        if conflicts == _RUNS:
                            raise
                        done = None  # what it read is no longer so: it decides anew
                case Action.CONFIRM if done is not None:
                    return await self._relayed(done)
                case Action.DUPLICATE if stored is not None:
                    return of_duplicate(stored, delivery, codec, self._clock.now())
                case Action.MISMATCH if stored is not None:
                    return of_mismatch(
                        stored.record, self._markers.changed(stored.record, delivery.body)
                    )
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
            entity_is_marker=self._markers.are_entities,
            message_ids=None
            if self._outbox is None
            else lambda ordinal: message_id(self.name, delivery.key, owner, ordinal),
        )
        began = self._clock.monotonic()
        attempt = Attempt(
            consumer=self.name,
            key=delivery.key,
            number=1,
            owner=owner,
            deadline=began + self.policy.deadline,
        )
        try:
            result = await run_unleased(
                work, attempt, self._clock, begin=lambda: enter_unit(unit, attempt)
            )
        finally:
            unit.seal()
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))
        if self._markers.are_entities and unit.entity is None:
            raise ConfigurationError(
                f"consumer {self.name}: the handler did not mark the entity that is to be its marker: call "
                "current_unit().mark(document)"
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

    async def _announced[R](
        self, delivery: Delivery, place: Place, owner: str, done: _Work[R]
    ) -> _Work[R]:
        """The work with its messages where a sweeper will find them, whatever becomes of us."""
        if self._outbox is None or not done.unit.messages:
            return done
        messages = [
            msgspec.structs.replace(message, trace_parent=delivery.trace_parent)
            for message in done.unit.messages
        ]
        parcel = await self._outbox.announced(
            place.partition, owner, messages, within=self.policy.lease
        )
        return done._replace(parcel=parcel)

    async def _relayed[R](self, done: _Work[R]) -> Handled[R]:
        """Send what was committed."""
        if self._outbox is not None and done.parcel is not None:
            await self._outbox.relay(done.parcel)
        return done.handled

    async def _withdrawn(self, done: _Work[Any]) -> None:
        """Another's marker is there: ours is never committed, nor are its messages."""
        if self._outbox is not None and done.parcel is not None:
            await self._outbox.withdraw(done.parcel)

    async def _committed(
        self, delivery: Delivery, place: Place, owner: str, done: _Work[Any], *, over: Stored | None
    ) -> bool:
        """Marker and unit of work in one transaction; False when there is a marker, or another by now.

        ``over``: the expired marker that this one takes the place of.
        """
        record = self._markers.record(
            delivery,
            owner,
            result=done.result,
            entity=done.unit.entity,
            now=self._clock.now(),
        )
        operations = (
            self._markers.written(record, place, over=over),
            *done.unit.operations,
        )
        if self._outbox is not None and done.parcel is not None:
            self._outbox.check(done.parcel)
            operations += done.parcel.pending()
        refused = await self._answered(lambda: self._store.commit(place.partition, operations))
        if refused is None:
            self._recent.keep(Stored(record=record, etag=""))
            return True
        if refused.index > 0:
            raise conflict(operations[refused.index], refused, index=refused.index - 1)
        return False

    async def _read(self, place: Place, key: str) -> Stored | None:
        found = await self._answered(lambda: self._store.read(*place))
        return None if found is None else self._markers.stored(found, key)

    async def _answered[T](self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(call, self._clock, within=self.policy.lease)
