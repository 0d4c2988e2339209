"""How a record is written down: a flat document that any store can keep. Pure functions.

Steps are JSON text, so that a store whose properties are scalars (Table Storage) keeps the same
document as one that keeps JSON (Cosmos DB). With a prefix, the record lives in reserved properties
of another document: a business entity that is its own marker.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .records import Record, Step

RESERVED: Final = "idempotency_"
"""Prefix of the properties that make a business entity a marker; business updates leave them alone."""

_OF_STORE: Final = frozenset({"extra"})
_NAMES: Final = tuple(name for name in Record.__struct_fields__ if name not in _OF_STORE)
_steps = msgspec.json.Decoder(tuple[Step, ...])


def to_document(record: Record, *, prefix: str = "") -> dict[str, Any]:
    """The record as a flat document; fields that are None are left out, unknown ones carried over."""
    document = dict(record.extra)
    for name in _NAMES:
        value = getattr(record, name)
        if name == "steps":
            value = msgspec.json.encode(value).decode() if value else None
        if value is not None:
            document[prefix + name] = str(value) if name == "status" else value
    return document


def from_document(document: Mapping[str, Any], *, prefix: str = "") -> Record:
    """The record in a document; what this release does not know of stays in ``extra``."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in document.items():
        field = name.removeprefix(prefix)
        if name.startswith(prefix) and field in _NAMES:
            known[field] = value
        else:
            extra[name] = value
    if "steps" in known:
        known["steps"] = _steps.decode(known["steps"])
    return msgspec.convert({**known, "extra": extra}, Record, strict=False)
