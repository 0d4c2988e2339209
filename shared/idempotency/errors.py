"""Every exception the module raises, and what each asks of its catcher.

    IdempotencyError
    ├── ConfigurationError      the set-up contradicts itself; raised at start-up, never per message
    ├── DeliveryRejected        this delivery can never be handled as it was sent
    │   ├── MissingKey          no deduplication key, or a part of it is missing
    │   ├── InvalidKey          the key is longer than 1,024 bytes of UTF-8
    │   └── MalformedContent    the body is not what the consumer declared it takes
    ├── TransientFailure        raised by handlers: not now; let the message come back, paced
    │   ├── DeadlineExceeded    the handler did not finish before its deadline
    │   └── UncertainEffect     a step was called, and what it did is not known
    ├── PermanentFailure        raised by handlers: never; keep the refusal and its reason
    ├── StoreUnavailable        the store is down, throttles, or an answer was lost
    ├── BusinessConflict        the transaction was refused by business data, not by the marker
    ├── ResultUnavailable       the work is done, and its result was not kept; asking again changes nothing
    └── AttemptEnded            the attempt must not go on: raised by its steps, to end the handler

Outcomes that are expected (duplicate, mismatch, in flight, ...) are return values, never exceptions.
"""


class IdempotencyError(Exception):
    """Base of everything raised here."""


class ConfigurationError(IdempotencyError, ValueError):
    """A consumer, a policy or a setting that cannot work; the message names it and the way out."""


class DeliveryRejected(IdempotencyError):
    """A delivery that no retry can save; adapters dead-letter it, or answer 400.

    ``reason`` is the short, stable name that ends up as the dead-letter reason; the raiser may narrow it.
    """

    reason = "DeliveryRejected"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class MissingKey(DeliveryRejected):
    """The delivery carries no deduplication key; it is refused, never run unprotected."""

    reason = "MissingKey"


class InvalidKey(DeliveryRejected):
    """The deduplication key cannot be kept."""

    reason = "InvalidKey"


class MalformedContent(DeliveryRejected):
    """The body cannot be read as what the consumer takes."""

    reason = "MalformedContent"


class TransientFailure(IdempotencyError):
    """Raised by a handler whose work cannot be done now: the record is released, the message paced.

    ``retry_after`` is a hint in seconds.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(TransientFailure):
    """The handler was cancelled at its deadline."""


class UncertainEffect(TransientFailure):
    """A step was called, and what it did is not known: the consumer's policy decides at the next try."""


class PermanentFailure(IdempotencyError):
    """Raised by a handler whose work can never succeed; the refusal is recorded and answers duplicates.

    ``reason`` is a short, stable name; ``description`` a sentence for a person. Neither may quote the
    payload: both are stored, logged and written on the dead letter.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(f"{reason}: {description}" if description else reason)
        self.reason = reason
        self.description = description


class StoreUnavailable(IdempotencyError):
    """The store did not answer as it should; whether the request took effect is not known.

    ``retry_after`` is the store's own hint in seconds, if it gave one.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BusinessConflict(IdempotencyError):
    """An operation of the unit of work other than its marker was refused; nothing was written.

    ``operation`` is the index in the unit of work, ``status`` the store's code (404, 409 or 412).
    """

    def __init__(self, message: str, *, operation: int, status: int) -> None:
        super().__init__(message)
        self.operation = operation
        self.status = status


class ResultUnavailable(IdempotencyError):
    """The work is done and recorded, but its result was too large, or can no longer be read as its type."""


class AttemptEnded(IdempotencyError):
    """The attempt was superseded, or its record quarantined: nothing more may run in it.

    Raised by ``Attempt.step``; the record stands as it is whatever the handler makes of the exception.
    """
