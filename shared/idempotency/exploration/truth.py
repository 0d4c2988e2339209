"""What really is, kept apart from what the consumer believes: the record, and the handler's runs."""

from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from ..decision import CLOCK_ALLOWANCE
from ..records import Outcome, Record, Status


class Broken(Exception):
    """A promise of the module does not hold in this schedule."""


class Held(msgspec.Struct, frozen=True):
    """The record as the store truly holds it, and when it was written (virtual seconds)."""

    record: Record
    etag: str
    written_at: float

    def lease_end(self) -> float | None:
        """When the record is free whoever owns it; None when no lease keeps it."""
        match self.record.status:
            case Status.IN_PROGRESS:
                return self.written_at + self.record.lease + CLOCK_ALLOWANCE
            case Status.UNCERTAIN:
                return self.written_at + self.record.settle + CLOCK_ALLOWANCE
            case _:
                return None


def kept_for(record: Record) -> float:
    """Seconds from its writing for which a record is its owner's."""
    return Held(record, "", 0.0).lease_end() or 0.0


class Run(msgspec.Struct):
    """One run of the handler, by one attempt of one delivery.

    ``stalled``: time went past its lease while it ran, so it may be superseded without knowing.
    ``cut_off``: its process cannot reach the store. ``failed``: it ended, or its delivery did, in a
    way that the promise of a plain effect counts as "not completed". ``forgotten``: its own attempt
    deleted the record, as a handler that raises says that it had no effect.
    """

    owner: str
    delivery: str
    content: str
    deadline: float
    """When the attempt says that its handler is cancelled."""
    renewed_until: float
    """When it is promised that no renewal begins any more."""
    executed: bool = False
    ended: bool = False
    stalled: bool = False
    cut_off: bool = False
    failed: bool = False
    forgotten: bool = False
    late_renewals: int = 0

    def cancelled(self, now: float) -> None:
        """The handler was cancelled: that is a failure at its deadline, or when its store is lost."""
        self.failed = self.failed or now >= self.deadline

    @property
    def may_be_repeated(self) -> bool:
        """Whether a plain effect of this run may be executed again by a later attempt."""
        return self.failed or self.stalled or self.cut_off


class EffectPromises(Protocol):
    """The truth about the effects of one schedule, and the promises about them.

    `plain` is for a handler that is one effect, or none, as a whole; `stepwise` for one of named steps.
    """

    def any(self) -> bool:
        """Whether anything has happened."""
        ...

    def wrote(self, before: Held | None, after: Held) -> None:
        """A write of the record took effect."""
        ...

    def deleted(self, owner: str) -> None:
        """The attempt ``owner`` deleted its record."""
        ...

    def allows(self, outcome: Outcome) -> bool:
        """Whether a delivery may be told that there is nothing more to do, though nothing is done."""
        ...

    def check_end(self, record: Record) -> None:
        """All messages are settled, and this is the record that is left."""
        ...

    def of_run(self, run: Run) -> tuple[Any, ...]:
        """What of a living process's run bears on the promises."""
        ...

    def summary(self, alive: Collection[str], now: float) -> Any:
        """What of the past bears on the promises still to be kept; ``alive``: owners told of elsewhere."""
        ...
