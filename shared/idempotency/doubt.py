"""A step that an earlier attempt may have called: what the consumer's policy makes of it."""

import asyncio
from typing import TYPE_CHECKING

from .clock import Clock, finished_within
from .effects import (
    Answer,
    CannotTell,
    DidNotHappen,
    Happened,
    Quarantine,
    Reconcile,
    Rerun,
    TakeoverPolicy,
)
from .errors import TransientFailure

if TYPE_CHECKING:
    from .attempt import Attempt


async def settled(
    attempt: "Attempt",
    name: str,
    policy: TakeoverPolicy,
    *,
    first_attempt_at: float,
    deadline: float,
    settle: float,
    clock: Clock,
) -> Happened | DidNotHappen | CannotTell | None:
    """What is known of a step in doubt; CannotTell is for a person, None is to call again.

    To be asked only when nothing of the earlier attempt can land any more: before that, "no" would
    mean "not yet". ``first_attempt_at``: seconds since the epoch, from which on the provider may have
    known our key. ``deadline``: seconds that a call, or a question, may take; ``settle``: seconds that
    a call may still land after it. Raises TransientFailure when the provider cannot be asked now.
    """
    why = f"step {name!r} may have been called by an attempt that ended in doubt"
    if isinstance(policy, Rerun):
        # however late this call lands, its key must still be known then
        if clock.now() + deadline + settle < first_attempt_at + policy.provider_key_retention:
            return None
        why += "; the provider may have forgotten its key by now"
        policy = policy.then
    if isinstance(policy, Quarantine):
        return CannotTell(why)
    answer = await _asked(policy, attempt, name, deadline, clock)
    return CannotTell(f"{why}; {answer.why}") if isinstance(answer, CannotTell) else answer


async def _asked(
    policy: Reconcile, attempt: "Attempt", name: str, deadline: float, clock: Clock
) -> Answer:
    asking = asyncio.ensure_future(policy.ask(attempt.key, name, attempt))
    try:
        if await finished_within(asking, deadline, clock):
            return asking.result()
        raise TransientFailure(f"step {name!r}: no answer about it within {deadline:g} s")
    except TransientFailure:
        raise
    except Exception as error:
        raise TransientFailure(
            f"step {name!r}: the provider could not be asked about it ({type(error).__name__})"
        ) from error
    finally:
        asking.cancel()
