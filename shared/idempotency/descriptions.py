"""Records as plain data, for scripts and over HTTP; business data never."""

from typing import Any

import msgspec

from .interventions import audit_of
from .scanning import Found


def record_as_json(found: Found, *, whole: bool) -> dict[str, Any]:
    """What there is to say of a record. ``whole``: with its result and its audit too."""
    record = found.record
    told: dict[str, Any] = {
        "consumer": record.consumer,
        "key": record.key,
        "status": str(record.status),
        "attempt": record.attempt,
        "age": round(found.age, 3),
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "expires_at": record.expires_at,
        "steps": [{"name": step.name, "done": step.done} for step in record.steps],
        "failure_reason": record.failure_reason,
        "failure_description": record.failure_description,
        "source": found.source,
        "placement": str(found.placement),
    }
    if whole:
        told |= {
            "result": record.result,
            "fingerprint": record.fingerprint,
            "owner": record.owner,
            "lease": record.lease,
            "first_sequence_number": record.first_sequence_number,
            "trace_parent": record.trace_parent,
            "schema": record.schema,
            "address": list(found.address),
            "etag": found.etag,
            "audit": [msgspec.to_builtins(entry) for entry in audit_of(found)],
        }
    return told
