"""What the broker refuses, and the AMQP condition by which a client learns of it.

Refusal
├── LockLost               the lock of a message expired, or the message was settled before
├── SessionLockLost        the lock of a session expired, or belongs to another receiver
├── SessionTaken           another receiver holds the session
├── MessageNotFound        no deferred or scheduled message has that sequence number
├── EntityNotFound         no queue, topic or subscription has that name
├── NotAllowed             the entity does not do that
├── NothingToReceive       no session became available in the time the client gave
├── TooLarge               a message is larger than the broker takes
├── Malformed              the bytes are no AMQP message
└── Unsupported            a management operation that this broker does not have
"""

from typing import ClassVar


class Refusal(Exception):
    """The broker says no; `condition` and `status` are what goes over the wire."""

    condition: ClassVar[str] = "amqp:internal-error"
    status: ClassVar[int] = 500


class LockLost(Refusal):
    """Settling or renewing came too late; the message is or will be delivered again."""

    condition = "com.microsoft:message-lock-lost"
    status = 410


class SessionLockLost(Refusal):
    """The session is no longer this receiver's."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionTaken(Refusal):
    """The session is locked by another receiver."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 409


class MessageNotFound(Refusal):
    """No such deferred or scheduled message."""

    condition = "com.microsoft:message-not-found"
    status = 404


class EntityNotFound(Refusal):
    """No such queue, topic or subscription."""

    condition = "amqp:not-found"
    status = 404


class NotAllowed(Refusal):
    """The entity exists but does not do that."""

    condition = "amqp:not-allowed"
    status = 400


class NothingToReceive(Refusal):
    """No session became available in time."""

    condition = "com.microsoft:timeout"
    status = 408


class TooLarge(Refusal):
    """A message is larger than the broker takes."""

    condition = "amqp:link:message-size-exceeded"
    status = 400


class Malformed(Refusal):
    """The bytes of a transfer are no AMQP message."""

    condition = "amqp:decode-error"
    status = 400


class Unsupported(Refusal):
    """A management operation this broker does not have."""

    condition = "amqp:not-implemented"
    status = 501
