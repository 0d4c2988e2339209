"""The attempt a handler runs in: what business code may ask of the module."""

from contextvars import ContextVar

import msgspec

from .errors import ConfigurationError


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at the work.

    ``number`` counts the tries at this key, from 1. ``owner`` is the unique id that fences its
    writes. ``deadline`` is when the handler is cancelled, on the monotonic clock, in seconds.
    """

    consumer: str
    key: str
    number: int
    owner: str
    deadline: float


# A context variable is per task: nested and concurrent calls each see their own attempt.
_current: ContextVar[Attempt] = ContextVar("idempotency_attempt")


def current_attempt() -> Attempt:
    """The attempt of the calling handler; raises ConfigurationError outside a protected handler."""
    attempt = _current.get(None)
    if attempt is None:
        raise ConfigurationError(
            "there is no current attempt: current_attempt() works only inside a handler that is "
            "protected by idempotent(...)"
        )
    return attempt


def enter(attempt: Attempt) -> None:
    """Make ``attempt`` the current one of the calling task."""
    _current.set(attempt)
