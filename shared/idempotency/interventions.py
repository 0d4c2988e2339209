"""What a person may do to a record: release, complete, quarantine. Each is one write under the ETag.

Every intervention sets a new owner, so that an attempt that still runs is fenced: it can neither
complete nor renew nor record a step. Every one leaves an audit entry in the record.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from .documents import AUDIT, RESERVED
from .errors import IdempotencyError
from .keys import presentable
from .records import SCHEMA, Record, Status
from .scanning import Found, Placement, RecordScan

_MOST_ENTRIES = 20
_LONGEST = 500
_MOST_BYTES = 16_000
"""Limits of an entry's texts, and of all entries: a record must be kept, whatever somebody types."""


class Refused(IdempotencyError):
    """The record does not allow it, as it is; the message says why, and what does."""


class ChangedMeanwhile(IdempotencyError):
    """The record was written between the look at it and the intervention; nothing was changed."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who changed a record by hand, when (seconds since the epoch), why, and what it was before."""

    action: str
    who: str
    at: float
    why: str
    was: str
    attempt: int


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Who intervenes, when (seconds since the epoch) and why."""

    who: str
    at: float
    why: str


def released(found: Found, reason: Reason, *, again: bool = False) -> Record:
    """The record such that the next delivery continues: finished steps are kept, open ones forgotten.

    For a failed record the refusal is taken back. ``again`` allows it of a completed one: its work
    then runs a second time. Raises Refused.
    """
    record = found.record
    _refuse_newer(record)
    if found.placement is Placement.BESIDE_DATA:
        raise Refused(
            "this marker was committed together with its data: releasing it would not undo them, and "
            "the work would not run again. Change the business data in the business's own way"
        )
    if record.status is Status.RELEASED:
        raise Refused("the record is released already: the next delivery continues it")
    if record.status is Status.COMPLETED and not again:
        raise Refused(
            "the work is completed: released, it would be done a second time. If that is what is "
            "wanted, say --again"
        )
    return record.replaced(
        **_changes("release", found, reason),
        status=Status.RELEASED,
        steps=tuple(step for step in record.steps if step.done),
        result=None,
        failure_reason=None,
        failure_description=None,
        finished_at=None,
        expires_at=None,
    )


def completed(found: Found, reason: Reason, *, result: str | None, retention: float) -> Record:
    """The record as if its work were done, with that result (JSON text, None: none is kept).

    ``retention``: seconds for which it is then kept. Raises Refused for a result that is no JSON, and
    for work that is completed already.
    """
    record = found.record
    _refuse_newer(record)
    if record.status is Status.COMPLETED:
        raise Refused("the work is completed already")
    if result is not None:
        try:
            msgspec.json.decode(result)
        except msgspec.DecodeError as error:
            raise Refused(f"the result is not JSON: {error}") from error
    beside = found.placement is Placement.BESIDE_DATA
    return record.replaced(
        **_changes("complete", found, reason),
        status=Status.COMPLETED,
        steps=(),
        result=result,
        failure_reason=None,
        failure_description=None,
        finished_at=reason.at,
        # a business entity that is a marker never expires
        expires_at=record.expires_at if beside else reason.at + retention,
    )


def quarantined(found: Found, reason: Reason) -> Record:
    """The record such that nothing runs for its key until a person decides. Raises Refused."""
    record = found.record
    _refuse_newer(record)
    if record.status is Status.QUARANTINED:
        raise Refused("the record is quarantined already")
    return record.replaced(
        **_changes("quarantine", found, reason),
        status=Status.QUARANTINED,
        failure_reason="Quarantined",
        failure_description=f"by {_short(reason.who)}: {_short(reason.why)}",
        expires_at=None,
    )


async def apply(scan: RecordScan, found: Found, record: Record) -> Found:
    """Write an intervention; raises ChangedMeanwhile when the record is not as it was looked at."""
    written = await scan.replace(found, record)
    if written is None:
        raise ChangedMeanwhile(
            f"the record of {presentable(found.record.key)!r} was changed meanwhile (a delivery is at "
            "work, or another person is): nothing was written. Look again"
        )
    return written


def audit_of(found: Found) -> list[AuditEntry]:
    """What was done to a record by hand, oldest first; what cannot be read is left out."""
    text = found.record.extra.get(_property(found))
    try:
        return msgspec.json.decode(str(text or "[]"), type=list[AuditEntry])
    except msgspec.DecodeError:
        return []


def _changes(action: str, found: Found, reason: Reason) -> dict[str, Any]:
    record = found.record
    entry = AuditEntry(
        action=action,
        who=_short(reason.who),
        at=reason.at,
        why=_short(reason.why),
        was=str(record.status),
        attempt=record.attempt,
    )
    kept = [*audit_of(found), entry][-_MOST_ENTRIES:]
    while len(text := msgspec.json.encode(kept)) > _MOST_BYTES:
        del kept[0]
    extra: Mapping[str, Any] = {**record.extra, _property(found): text.decode()}
    return {"owner": f"operator-{uuid.uuid4().hex}", "extra": extra}


def _property(found: Found) -> str:
    beside = found.placement is Placement.BESIDE_DATA
    return f"{RESERVED}{AUDIT}" if beside else AUDIT


def _refuse_newer(record: Record) -> None:
    if record.schema > SCHEMA:
        raise Refused(
            f"the record was written by a newer release (schema {record.schema}): use that release's "
            "commands"
        )


def _short(text: str) -> str:
    return presentable(text)[:_LONGEST]
