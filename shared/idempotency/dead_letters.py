"""Dead letters: what there is to say of one, and whether a re-send could do any good."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from .decision import Action, decide
from .errors import DeliveryRejected
from .fingerprint import canonical_json, raw_bytes
from .records import Record, Status, Stored
from .scanning import RecordScan, find_in

type Mode = Literal["skip", "force"]
"""skip: what its record would refuse stays where it is. force: everything is re-sent, and neither a
memory nor an age limit answers it; its record still decides."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was set aside, and why. Times are in seconds since the epoch."""

    sequence_number: int
    message_id: str | None
    key: str | None
    reason: str
    description: str
    enqueued_at: float | None
    resend_count: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant: those of these reasons, and of this key; all by default."""

    reasons: frozenset[str] = frozenset()
    key: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether it is one of them."""
        return (not self.reasons or letter.reason in self.reasons) and self.key in (
            None,
            letter.key,
        )


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with one dead letter, and why where it is left."""

    letter: DeadLetter
    resend: bool
    why: str = ""


type Judge = Callable[[DeadLetter, bytes], Awaitable[str | None]]
"""Why a dead letter is not to be re-sent; None when it is."""


async def admit(letter: DeadLetter, body: bytes) -> str | None:
    """The judge that lets everything pass."""
    return None


def by_record(consumer: str, scans: list[RecordScan]) -> Judge:
    """The judge who leaves what the consumer's record would refuse anyway.

    The body is digested as the record's fingerprint was, where that needs no more than the body;
    content that cannot be compared counts as the same.
    """

    async def judge(letter: DeadLetter, body: bytes) -> str | None:
        hit = await find_in(scans, consumer, letter.key or "")
        if hit is None:
            return None
        _, found = hit
        stored = Stored(record=found.record, etag=found.etag, age=found.age)
        decision = decide(stored, owner="", fingerprint=_fingerprint_like(found.record, body))
        match decision.action:
            case Action.DUPLICATE if found.record.status is Status.FAILED:
                return "its record says that it failed for good: release the record first"
            case Action.DUPLICATE:
                return "its work is done: it would be a duplicate"
            case Action.MISMATCH:
                return "its key was used before for other content: it would be refused again"
            case Action.QUARANTINED:
                return "its record is quarantined: release or complete the record first"
        return None

    return judge


def _fingerprint_like(record: Record, body: bytes) -> str | None:
    algorithm = (record.fingerprint or "").partition(":")[0]
    digests = {"json1": canonical_json, "raw1": raw_bytes}
    if algorithm not in digests:
        return None
    try:
        return digests[algorithm](body)
    except DeliveryRejected:
        return f"{algorithm}:unreadable"
