"""A message: what the producer sent, and what the broker adds to it. No AMQP here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
"""The application properties that say why a message was dead-lettered."""


class State(IntEnum):
    """Where a message stands; the numbers are the wire's `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Outcome(Enum):
    """What a consumer may say about a message it holds."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead-lettered"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Disposition:
    """An outcome with its reason, and properties to put on the message."""

    outcome: Outcome
    reason: str | None = None
    description: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The AMQP sections of a message, kept as they came so that nothing is lost on the way."""

    header: tuple[object, ...] = ()
    annotations: Mapping[object, object] = field(default_factory=dict)
    properties: bytes = b""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Content:
    """What the producer sent. `time_to_live` in seconds, `scheduled_for` in the broker's time."""

    message_id: str | None
    body: bytes = b""
    session_id: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    time_to_live: float | None = None
    scheduled_for: float | None = None
    encoded: Encoded = field(default_factory=Encoded)


@dataclass(slots=True)
class Message:
    """One message in one queue. Times are seconds since the epoch, in the broker's time."""

    content: Content
    sequence_number: int
    properties: dict[str, object]
    enqueued_at: float
    state: State = State.ACTIVE
    delivery_count: int = 0
    expires_at: float | None = None
    dead_letter_source: str | None = None

    def snapshot(self) -> "Snapshot":
        """A copy for whoever looks at the queue from outside."""
        return Snapshot(
            message_id=self.content.message_id,
            body=self.content.body,
            sequence_number=self.sequence_number,
            delivery_count=self.delivery_count,
            reason=_text(self.properties.get(REASON)),
            description=_text(self.properties.get(DESCRIPTION)),
            application_properties=dict(self.properties),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A message as tests and the demo see it."""

    message_id: str | None
    body: bytes
    sequence_number: int
    delivery_count: int
    reason: str | None
    description: str | None
    application_properties: Mapping[str, object]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
