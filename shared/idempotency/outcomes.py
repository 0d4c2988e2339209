"""What a delivery is told that was not processed. Pure functions over what the store holds."""

from typing import Any

from .errors import PermanentFailure
from .records import Cause, Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .results import ResultCodec


def of_duplicate[R](
    stored: Stored, delivery: Delivery, codec: ResultCodec[R], now: float
) -> Handled[R]:
    """A duplicate of success gets the recorded result, one of failure the recorded refusal.

    A result that can no longer be read as the handler's type counts as not kept.
    """
    record = stored.record
    failed = record.status is Status.FAILED
    result: R | None = None
    result_kept = record.result is not None
    if record.result is not None:
        try:
            result = codec.decode(record.result)
        except ValueError:
            result_kept = False
    return Handled(
        outcome=Outcome.DUPLICATE,
        result=result,
        result_kept=result_kept or failed,
        cause=cause_of(record, delivery),
        reason=record.failure_reason or "",
        description=record.failure_description or "",
        age=None if record.finished_at is None else max(0.0, now - record.finished_at),
        attempt=record.attempt,
        origin=record.trace_parent,
        failed=failed,
    )


def cause_of(record: Record, delivery: Delivery) -> Cause:
    """The same first sequence number is the same message again; another one was sent again."""
    if delivery.sequence_number is None or record.first_sequence_number is None:
        return Cause.REDELIVERY if delivery.redelivered else Cause.RESEND
    same = delivery.sequence_number == record.first_sequence_number
    return Cause.REDELIVERY if same else Cause.RESEND


def of_mismatch(record: Record, changed: tuple[str, ...] = ()) -> Handled[Any]:
    """The key was used before for other content; ``changed`` names the fields, never their values."""
    fields = f"; changed: {', '.join(changed)}" if changed else ""
    return Handled(
        outcome=Outcome.MISMATCH,
        reason="PayloadMismatch",
        description=f"this deduplication key was used before with other content{fields}. Another message "
        "needs a key of its own",
        attempt=record.attempt,
        origin=record.trace_parent,
    )


def of_refusal(failure: PermanentFailure, *, attempt: int) -> Handled[Any]:
    """The work can never succeed."""
    return Handled(
        outcome=Outcome.FAILED,
        reason=failure.reason,
        description=failure.description,
        attempt=attempt,
    )


def of_quarantined(record: Record) -> Handled[Any]:
    """Nothing runs for this key until a person decides."""
    return Handled(
        outcome=Outcome.QUARANTINED,
        reason="Quarantined",
        description=f"{record.failure_description or 'the effect of an earlier attempt is unknown'} (look "
        "at what was done, then release or complete the record by hand)",
        attempt=record.attempt,
    )


def too_old(delivery: Delivery, policy: Policy, now: float) -> Handled[Any] | None:
    """The outcome of a message sent before ``max_age``; None when it is young enough or no one can tell.

    An operator's forced re-send is admitted whatever its age.
    """
    if policy.max_age is None or delivery.sent_at is None or delivery.forced:
        return None
    age = now - delivery.sent_at
    if age <= policy.max_age:
        return None
    return Handled(
        outcome=Outcome.TOO_OLD,
        reason="TooOld",
        description=f"sent {age:.0f} s ago, more than the {policy.max_age:.0f} s for which "
        "duplicates are surely recognised; a person who knows that it was never handled may force it in",
    )
