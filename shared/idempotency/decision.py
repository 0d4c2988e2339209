"""The decision table: what to do with a delivery, given what the store holds. Pure, no I/O."""

from enum import StrEnum

import msgspec

from .fingerprint import same_content
from .records import SCHEMA, Record, Status, Stored

CLOCK_ALLOWANCE = 2.0
"""Seconds a lease is honoured beyond its end: the store's time stamps may be whole seconds."""


class Action(StrEnum):
    """What the consumer does next."""

    CLAIM = "claim"
    PROCEED = "proceed"
    CONFIRM = "confirm"
    """Our own finished write, whose answer was lost: it was processed."""
    QUARANTINED = "quarantined"
    WAIT = "wait"
    DUPLICATE = "duplicate"
    MISMATCH = "mismatch"
    TAKE_OVER = "take_over"
    CONTINUE = "continue"
    """Claim a released record again; its steps are kept."""


class Decision(msgspec.Struct, frozen=True):
    """An action; for WAIT, ``wait`` is how many seconds are left until the record is free at the latest."""

    action: Action
    wait: float = 0.0


def decide(
    stored: Stored | None, *, owner: str, fingerprint: str | None, reusable: bool = False
) -> Decision:
    """Decide by the first row that applies:

    ==  =====================================================  =========  ==================================
    #   what the store holds                                   content    decision
    ==  =====================================================  =========  ==================================
    1   nothing                                                -          claim
    2   in progress, owner is this very attempt                -          proceed: our write, answer lost
    2b  finished, owner is this very attempt                   -          confirm: our write, answer lost
    3   quarantined                                            -          quarantined
    4   in progress with lease alive, or uncertain and not     any        wait, also for other content: the
        yet settled                                                       other attempt may still release
    4b  completed or failed, past its retention, and keys may  any        claim, in its place
        be used again (``reusable``)
    5   completed or failed                                    same       duplicate
    6   completed, failed, uncertain, released, or in          different  mismatch
        progress with lease over
    7   in progress with lease over, or uncertain and settled  same       take over
    8   released                                               same       continue, steps kept
    ==  =====================================================  =========  ==================================

    A finished record that is still there stays a duplicate however old it is; only keys that callers
    choose for one exchange, as over HTTP, are ``reusable``.
    An unfinished record of a newer schema than ours is never claimed: we wait for the newer release.
    ``owner`` is the id of the attempt that asks; ``fingerprint`` that of its delivery.
    """
    if stored is None:
        return Decision(Action.CLAIM)
    record = stored.record
    if record.owner == owner and record.status.is_finished:
        return Decision(Action.CONFIRM)
    if record.owner == owner and record.status is Status.IN_PROGRESS:
        return Decision(Action.PROCEED)
    if record.status is Status.QUARANTINED:
        return Decision(Action.QUARANTINED)
    left = _seconds_left(stored)
    if left > 0:
        return Decision(Action.WAIT, left)
    if reusable and _is_expired(stored):
        return Decision(Action.CLAIM)
    if not same_content(record.fingerprint, fingerprint):
        return Decision(Action.MISMATCH)
    if record.status.is_finished:
        return Decision(Action.DUPLICATE)
    if record.schema > SCHEMA:
        return Decision(Action.WAIT, max(record.lease, 1.0))
    if record.status is Status.RELEASED:
        return Decision(Action.CONTINUE)
    return Decision(Action.TAKE_OVER)


def _is_expired(stored: Stored) -> bool:
    """Whether our own release's record, which we may replace, was kept for as long as it should be."""
    return stored.record.schema <= SCHEMA and is_past_retention(stored.record, stored.age)


def is_past_retention(record: Record, age: float) -> bool:
    """Whether a finished record was kept for as long as it should be.

    ``age``: seconds since it was last written, by the store's own clock.
    """
    if not record.status.is_finished or record.expires_at is None or record.finished_at is None:
        return False
    return age > record.expires_at - record.finished_at + CLOCK_ALLOWANCE


def _seconds_left(stored: Stored) -> float:
    """How long the record still belongs to its attempt, by the store's clock; 0 or less when free."""
    match stored.record.status:
        case Status.IN_PROGRESS:
            held = stored.record.lease
        case Status.UNCERTAIN:
            held = stored.record.settle
        case _:
            return 0.0
    return held + CLOCK_ALLOWANCE - stored.age
