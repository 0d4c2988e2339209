"""Records and keys to test a store with."""

import uuid
from typing import Any, Final

from ..records import Record, Status

HOSTILE_KEYS: Final = (
    "plain",
    "a/b/../c",
    "a\\b",
    "what?",
    "100%",
    "%2F",
    "#1",
    "it's; DROP TABLE --",
    '{"quoted":"json"}',
    "tab\tand\nnew line",
    "\x00\x01\x1f\x7f\x85",
    " leading and trailing ",
    "trailing",
    "trailing ",
    "Case",
    "case",
    "caf\u00e9",
    "cafe\u0301",
    "\U0001f600",
    "\ud83d",
    "\ud83d\\udE00",
    "!" + "0" * 64,
    "~",
    ".",
    "..",
    "\u202eright to left",
    "k" * 1024,
    "k" * 1023 + "K",
)
"""Keys that are all different, and that services, addresses and encodings are prone to mix up."""


def a_record(key: str | None = None, **fields: Any) -> Record:
    """A record in progress, of a key of its own."""
    return Record(
        consumer="contract",
        key=key or uuid.uuid4().hex,
        status=Status.IN_PROGRESS,
        owner=uuid.uuid4().hex,
        lease=30.0,
        started_at=1_700_000_000.25,
    ).replaced(**fields)
