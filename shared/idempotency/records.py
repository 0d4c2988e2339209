"""What the module knows: deliveries, records, outcomes. Frozen data, no behaviour beyond reading it."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from .errors import ConfigurationError

SCHEMA: Final = 1
"""Version of the record's layout; an older deployment never takes over a record of a newer one."""


class Status(StrEnum):
    """Where a record stands."""

    IN_PROGRESS = "in_progress"
    UNCERTAIN = "uncertain"
    """A step's effect is unknown."""
    RELEASED = "released"
    """An attempt failed cleanly after some recorded steps; the next continues."""
    COMPLETED = "completed"
    FAILED = "failed"
    """For good: every duplicate gets the recorded refusal."""
    QUARANTINED = "quarantined"
    """Only a person can tell; nothing runs until somebody decides."""

    @property
    def is_finished(self) -> bool:
        return self in (Status.COMPLETED, Status.FAILED)


class Outcome(StrEnum):
    """How one delivery ended."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"
    IN_FLIGHT = "in_flight"
    MISMATCH = "mismatch"
    STALE = "stale"
    QUARANTINED = "quarantined"
    TOO_OLD = "too_old"
    FAILED = "failed"


class Cause(StrEnum):
    """Why a duplicate came."""

    REDELIVERY = "redelivery"
    """The same message of the broker again: an acknowledgement was lost or too late."""
    RESEND = "resend"
    """Another message with the same key: the producer sent twice."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One hand-over of one message to one consumer.

    ``redelivered`` is the broker's word that this message was handed out before. ``sent_at`` is the
    *original* time of sending in seconds since the epoch, also for a re-send; None when nothing
    trustworthy tells it. ``forced`` marks an operator's re-send: no memory of this process may
    answer it. ``body`` is there for the evidence of a mismatch; it never shows in a repr or a log.
    """

    key: str
    fingerprint: str | None = None
    trigger: str = "direct"
    redelivered: bool = False
    delivery_count: int | None = None
    sequence_number: int | None = None
    sent_at: float | None = None
    correlation_id: str | None = None
    trace_parent: str | None = None
    forced: bool = False
    body: bytes = b""

    def __repr__(self) -> str:
        return (
            f"Delivery(key={self.key!r}, trigger={self.trigger!r}, body of {len(self.body)} bytes)"
        )


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One named third-party effect inside an attempt; ``result`` is JSON text once it is done."""

    name: str
    begun_at: float
    deadline: float
    done: bool = False
    result: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the store keeps per (consumer, key).

    Durations and instants are in seconds, instants since the epoch in UTC. ``lease`` counts from the
    store's own time stamp of the last write. ``result`` is JSON text; None means that none is kept,
    which differs from a kept ``null``. ``extra`` holds properties of the document that this release
    does not know (of a newer schema, or business data beside a marker); they are written back as found.
    ``evidence`` holds the digests that name what changed in a mismatch, see `evidence`.
    """

    consumer: str
    key: str
    status: Status
    owner: str
    attempt: int = 1
    fingerprint: str | None = None
    lease: float = 0.0
    settle: float = 0.0
    steps: tuple[Step, ...] = ()
    result: str | None = None
    failure_reason: str | None = None
    failure_description: str | None = None
    started_at: float = 0.0
    finished_at: float | None = None
    expires_at: float | None = None
    first_sequence_number: int | None = None
    trace_parent: str | None = None
    evidence: str | None = None
    schema: int = SCHEMA
    extra: Mapping[str, Any] = {}

    def replaced(self, **changes: Any) -> "Record":
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A record as the store holds it.

    ``etag`` fences the next write. ``age`` is how many seconds ago the record was last written, by
    the store's own clock; 0 right after a write of ours.
    """

    record: Record
    etag: str
    age: float = 0.0


class Handled[R](msgspec.Struct, frozen=True, kw_only=True):
    """What became of a delivery.

    ``result`` is the handler's result, or the recorded one for a duplicate. ``reason`` and
    ``description`` say why it was not processed, fit for a dead letter. ``retry_after`` is in
    seconds, for `in_flight`. ``age`` is how many seconds ago the original was finished.
    """

    outcome: Outcome
    result: R | None = None
    cause: Cause | None = None
    reason: str = ""
    description: str = ""
    retry_after: float = 0.0
    age: float | None = None
    attempt: int | None = None
    origin: str | None = None
    """Trace context of the attempt that did the work, for a duplicate."""
    result_kept: bool = True
    """False when the work is done but its result could not be kept, or is no longer readable as the
    handler's type: ``result`` is then None."""
    failed: bool = False
    """A duplicate of a failure: the recorded refusal, never to be acknowledged as done."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one consumer, in seconds; checked against each other when it is made.

    ``lease``: until when an unfinished record belongs to its attempt. ``heartbeat``: how often it is
    renewed. ``wait``: how long a delivery waits for another attempt in flight. ``deadline``: when a
    handler is cancelled. ``retention``: how long a finished record is kept. ``max_age``: how old a
    message may be, None for no check. ``waiting_slots``: how many deliveries may wait at once in this
    process. ``max_result_bytes``: a larger result is not kept. ``memory``: for how long this process
    remembers what it completed, 0 for not at all. ``evidence``: whether a record keeps salted digests of
    the body's top-level fields, so that a mismatch can name those that changed.
    """

    lease: float = 30.0
    heartbeat: float = 10.0
    wait: float = 45.0
    deadline: float = 300.0
    retention: float = 30 * 24 * 3600.0
    max_age: float | None = None
    max_delivery_count: int = 10
    waiting_slots: int = 16
    max_result_bytes: int = 30_000
    memory: float = 10.0
    evidence: bool = True

    def __post_init__(self) -> None:
        for name in ("lease", "heartbeat", "deadline", "retention"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}: it must be a number of seconds above 0"
                )
        for name in ("wait", "memory", "waiting_slots", "max_result_bytes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}: it must be a number of 0 or more"
                )
        if self.heartbeat * 2 > self.lease:
            raise ConfigurationError(
                f"heartbeat ({self.heartbeat:g} s) must be at most half the lease ({self.lease:g} s), "
                "or one late renewal loses the attempt"
            )
        if self.lease > self.wait:
            raise ConfigurationError(
                f"lease ({self.lease:g} s) must not exceed wait ({self.wait:g} s): a delivery that "
                "waits for a crashed attempt must see its lease end"
            )
        longest = self.wait * (self.max_delivery_count - 1)
        if self.deadline > longest:
            raise ConfigurationError(
                f"deadline ({self.deadline:g} s) must not exceed wait x (max delivery count - 1) = "
                f"{longest:g} s: the duplicates of a slow message would be dead-lettered before it ends"
            )
        if self.max_age is not None and not 0 < self.max_age <= self.retention:
            raise ConfigurationError(
                f"max_age ({self.max_age:g} s) must be above 0 and not exceed retention "
                f"({self.retention:g} s): a message accepted after its record is gone would run twice"
            )
