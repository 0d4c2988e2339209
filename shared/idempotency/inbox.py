"""The inbox form: the marker and the business writes commit in ONE transaction.

The handler builds a unit of work; nothing it does is visible before the commit, so two handlers may
run at once and only one has an effect. The partition is a pure function of the key, fixed before the
handler runs: a second partition would hold a second marker. The marker is operation 0: a conflict
there is a duplicate, a conflict elsewhere is a business conflict.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from .attempt import Attempt, enter
from .clock import Clock, SystemClock
from .decision import Action, decide
from .documents import RESERVED, from_document, to_document
from .errors import ConfigurationError, DeadlineExceeded, PermanentFailure
from .events import HandlerRan, Observer, ignore, observed
from .fencing import answered
from .outcomes import of_duplicate, of_mismatch, of_quarantined, too_old
from .records import Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec
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

        Raises BusinessConflict when another operation is refused. Either way nothing was written.
        """
        ...

    async def close(self) -> None: ...


type ChangedFields = Callable[[Mapping[str, Any], bytes], tuple[str, ...]]
"""Names the fields in which a recorded business document and a message's body differ."""


class Inbox:
    """A named unit of work whose business writes and marker are one transaction.

    ``changed_fields`` gives the evidence of a mismatch where the marker is the business entity.
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
        self._observer = observer
        self._clock = clock or SystemClock()
        self._changed_fields = changed_fields

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
        BusinessConflict, and whatever the handler raised; then nothing was written.
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
        owner = uuid.uuid4().hex
        expired = too_old(delivery, self.policy, self._clock.now())
        marker = await self._read(delivery.key) if delivery.redelivered or expired else None
        if marker is None and expired:
            return expired
        ready: tuple[UnitOfWork, str] | None = None
        for _ in range(_COMMITS):
            stored = marker.stored if marker else None
            decision = decide(stored, owner=owner, fingerprint=delivery.fingerprint)
            match decision.action:
                case Action.CLAIM:
                    if ready is None:
                        try:
                            ready = await self._run(delivery, owner, work, codec)
                        except PermanentFailure as failure:
                            return Handled(
                                outcome=Outcome.FAILED,
                                reason=failure.reason,
                                description=failure.description,
                            )
                    if await self._committed(delivery, owner, *ready):
                        return _processed(codec.decode(ready[1]))
                case Action.CONFIRM if ready is not None:
                    return _processed(codec.decode(ready[1]))
                case Action.MISMATCH if marker is not None:
                    return of_mismatch(marker.stored.record, self._changed(marker, delivery.body))
                case Action.QUARANTINED if marker is not None:
                    return of_quarantined(marker.stored.record)
                case _ if marker is not None:
                    return of_duplicate(marker.stored, delivery, codec, self._clock.now())
            marker = await self._read(delivery.key)
        return Handled(outcome=Outcome.IN_FLIGHT, retry_after=1.0)

    async def _run[R](
        self,
        delivery: Delivery,
        owner: str,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
    ) -> tuple[UnitOfWork, str]:
        """The handler's unit of work, and its result as it will be kept."""
        unit = UnitOfWork(delivery.key)
        deadline = self._clock.monotonic() + self.policy.deadline
        attempt = Attempt(
            consumer=self.name, key=delivery.key, number=1, owner=owner, deadline=deadline
        )

        async def run() -> R:
            enter(attempt)
            enter_unit(unit)
            return await work()

        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self.policy.deadline) as timeout:
                # a task of its own: the context variables end with it
                return unit, codec.encode(await asyncio.create_task(run()))
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise DeadlineExceeded(
                f"consumer {self.name}: the handler did not finish within "
                f"{self.policy.deadline:g} s; nothing was written"
            ) from error
        finally:
            self._observer(HandlerRan(consumer=self.name, duration=self._clock.monotonic() - began))

    async def _committed(
        self, delivery: Delivery, owner: str, unit: UnitOfWork, result: str
    ) -> bool:
        now = self._clock.now()
        record = Record(
            consumer=self.name,
            key=delivery.key,
            status=Status.COMPLETED,
            owner=owner,
            fingerprint=delivery.fingerprint,
            result=result,
            started_at=now,
            finished_at=now,
            first_sequence_number=delivery.sequence_number,
            trace_parent=delivery.trace_parent,
        )
        marker = {**unit.marker, **to_document(record, prefix=RESERVED)}
        return await answered(
            lambda: self._store.commit(delivery.key, marker, tuple(unit.operations)),
            self._clock,
            within=self.policy.lease,
        )

    def _changed(self, marker: Marker, body: bytes) -> tuple[str, ...]:
        if self._changed_fields is None:
            return ()
        return self._changed_fields(marker.document, body)

    async def _read(self, key: str) -> Marker | None:
        return await answered(lambda: self._store.read(key), self._clock, within=self.policy.lease)


def _processed[R](result: R) -> Handled[R]:
    return Handled(outcome=Outcome.PROCESSED, result=result, attempt=1)


def marker_of(document: Mapping[str, Any], *, etag: str, age: float) -> Marker:
    """The marker in a stored document, for implementations of InboxStore."""
    record = from_document(document, prefix=RESERVED)
    return Marker(stored=Stored(record=record, etag=etag, age=age), document=record.extra)
