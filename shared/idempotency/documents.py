"""How a record is written down: a flat document that any store can keep. Pure functions.

Steps are JSON text, so that a store whose properties are scalars (Table Storage) keeps the same
document as one that keeps JSON (Cosmos DB). With a prefix, the record lives in reserved properties
of another document: a business entity that is its own marker.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .keys import presentable
from .records import SCHEMA, Record, Status, Step

RESERVED: Final = "idempotency_"
"""Prefix of the properties that make a business entity a marker; business updates leave them alone."""

AUDIT: Final = "audit"
"""What was done to a record by hand, as JSON text; beside the data it has the reserved prefix."""

DELETED: Final = f"{RESERVED}deleted"
"""True in the tombstone of a business entity that was a marker, and still is one."""

_OF_STORE: Final = frozenset({"extra"})
_NAMES: Final = tuple(name for name in Record.__struct_fields__ if name not in _OF_STORE)
_steps = msgspec.json.Decoder(tuple[Step, ...])


def to_document(record: Record, *, prefix: str = "") -> dict[str, Any]:
    """The record as a flat document; fields that are None are left out, unknown ones carried over."""
    document = dict(record.extra)
    for name in _NAMES:
        value = getattr(record, name)
        match name:
            case "steps":
                value = msgspec.json.encode(value).decode() if value else None
            case "status":
                value = str(value)
            case "key" | "consumer":
                value = presentable(value)
            case "first_sequence_number" if value is not None:
                value = str(value)  # 64 bits, of which a number in JSON keeps 53
        if value is not None:
            document[prefix + name] = value
    return document


def from_document(
    document: Mapping[str, Any], *, consumer: str, key: str, prefix: str = ""
) -> Record:
    """The record of (consumer, key) in a document; what this release does not know stays in ``extra``.

    A document that cannot be read never counts as absent: one of a newer schema is uncertain, which
    this release waits for, any other is quarantined, until a person decides.
    """
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in document.items():
        field = name.removeprefix(prefix)
        if name.startswith(prefix) and field in _NAMES:
            known[field] = value
        else:
            extra[name] = value
    known |= {"consumer": consumer, "key": key, "extra": extra}
    try:
        if "steps" in known:
            known["steps"] = _steps.decode(known["steps"])
        return msgspec.convert(known, Record, strict=False)
    except msgspec.DecodeError as error:
        return _unreadable(known, error)


def business_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The business properties of a document; None of the tombstone of an entity that was deleted."""
    if document.get(DELETED):
        return None
    return {name: value for name, value in document.items() if not name.startswith(RESERVED)}


def is_marker(document: Mapping[str, Any]) -> bool:
    """Whether a document carries a record in its reserved properties."""
    return f"{RESERVED}status" in document


def _unreadable(known: Mapping[str, Any], error: Exception) -> Record:
    schema = known.get("schema")
    newer = isinstance(schema, int) and schema > SCHEMA
    return Record(
        consumer=known["consumer"],
        key=known["key"],
        status=Status.UNCERTAIN if newer else Status.QUARANTINED,
        owner="",
        schema=schema if newer else SCHEMA,  # type: ignore[arg-type]
        failure_reason="Unreadable",
        failure_description=f"the document in the record's place cannot be read: {error}",
        extra=known["extra"],
    )
