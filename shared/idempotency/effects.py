"""Effects outside the store: what a consumer states about them, and what it does when one is in doubt.

A call whose answer never came has happened, or not, or has yet to: no local rule can tell. So a
consumer with such effects says what to do then, before it runs at all.
"""

import math
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import (
    BusinessConflict,
    ConfigurationError,
    DeliveryRejected,
    PermanentFailure,
    TransientFailure,
    UncertainEffect,
)

if TYPE_CHECKING:
    from .attempt import Attempt

# -- what the provider says of a step in doubt


class Happened(msgspec.Struct, frozen=True):
    """The effect is there; ``result`` is what the step would have returned."""

    result: Any = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """The effect is not there and, after ``settle``, will not come: the step runs."""


class CannotTell(msgspec.Struct, frozen=True):
    """Nobody but a person can find out; ``why`` is a sentence for them."""

    why: str = "the provider cannot tell"


type Answer = Happened | DidNotHappen | CannotTell
type Ask = Callable[[str, str, "Attempt"], Awaitable[Answer]]
"""Asks the provider: (deduplication key, step, attempt) -> what it knows. A provider that cannot be
asked *now* is a TransientFailure, or any exception: the question is put again later."""

# -- policies


class Quarantine(msgspec.Struct, frozen=True):
    """Nothing runs until a person has looked."""


class Reconcile(msgspec.Struct, frozen=True):
    """Ask the provider what became of the step, then go on accordingly."""

    ask: Ask


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """Call again under the same downstream key: right for as long as the provider knows that key.

    ``provider_key_retention``: how long that is, in seconds; it counts from the first attempt. A call
    that could land after it, its deadline and ``settle`` from now, would be taken for a new one: then
    ``then`` applies. ``math.inf`` states that the effect is idempotent by nature.
    """

    provider_key_retention: float
    then: Reconcile | Quarantine = Quarantine()

    def __post_init__(self) -> None:
        if not self.provider_key_retention > 0:
            raise ConfigurationError(
                f"provider_key_retention is {self.provider_key_retention}: it must be a number of seconds "
                "above 0"
            )


type TakeoverPolicy = Rerun | Reconcile | Quarantine

_NAMES: dict[type[Any], str] = {
    Rerun: "rerun",
    Reconcile: "reconcile",
    Quarantine: "quarantine",
}


def name_of(policy: TakeoverPolicy) -> str:
    """The policy's name in metrics and logs."""
    return _NAMES[type(policy)]


type Classify = Callable[[BaseException], bool]
"""Says of an exception whether the effect of the call that raised it is unknown."""


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer states about its effects outside the store.

    ``policy`` applies to each unrecorded step of an attempt that takes over. ``settle`` is how long a
    call may still land after everybody stopped waiting for it, in seconds: no policy acts sooner. It
    must not be less than the longest deadline of a step; None is the lease, which every deadline is
    below. ``unknown_effect`` says of an exception whether the effect is unknown after it.
    ``whole_handler``: the handler names no steps, and is one step as a whole.
    """

    policy: TakeoverPolicy
    settle: float | None = None
    unknown_effect: Classify | None = None
    whole_handler: bool = False

    def __post_init__(self) -> None:
        if self.settle is not None and not 0 < self.settle < math.inf:
            raise ConfigurationError(
                f"settle is {self.settle}: it must be a number of seconds above 0"
            )


# -- what an exception tells

_REFUSALS = (TransientFailure, PermanentFailure, DeliveryRejected, BusinessConflict)
"""Raised by a call that knows: nothing happened."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL")
_UNCLEAR_STATUS = frozenset({408, 409, 425})
"""The request timed out, or the first one with this key still runs."""
_TOO_MANY_REQUESTS = 429


def unknown_effect(error: BaseException) -> bool:
    """Whether the effect of a call that raised ``error`` is unknown; what is not known to be harmless is.

    Known not to have happened: TransientFailure, PermanentFailure and rejections raised by the call
    itself; in httpx, connections that were never made (refused, timed out, none free in the pool) and
    4xx answers but 408, 409 and 425. Unknown: time-outs, cancellation, connections lost after
    sending, 5xx answers, and every other exception. A call that tries again by itself must raise what
    is true of all its tries together, not only of the last.
    """
    if isinstance(error, UncertainEffect):
        return True
    if isinstance(error, _REFUSALS):
        return False
    httpx: Any = sys.modules.get("httpx")  # whoever raised its errors has imported it
    if httpx is None:
        return True
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return not 400 <= status < 500 or status in _UNCLEAR_STATUS
    return not isinstance(error, tuple(getattr(httpx, name) for name in _NOT_SENT))


def refused_for_good(error: BaseException) -> bool:
    """Whether the provider has said no to this very step, which also answers for earlier tries at it.

    A connection refused or a 429 only says: not now. That tells nothing of an earlier attempt's call.
    """
    if isinstance(error, PermanentFailure):
        return True
    httpx: Any = sys.modules.get("httpx")
    return (
        httpx is not None
        and isinstance(error, httpx.HTTPStatusError)
        and 400 <= error.response.status_code < 500
        and error.response.status_code != _TOO_MANY_REQUESTS
    )
