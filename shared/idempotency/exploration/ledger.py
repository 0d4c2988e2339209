"""What really happened in a schedule, kept apart from what the consumer believes; and the promises.

A promise that does not hold raises `Broken` at the very step that breaks it.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from ..decision import CLOCK_ALLOWANCE
from ..records import Handled, Outcome, Record, Status


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


class Ledger:
    """The truth of one schedule about its one key."""

    def __init__(self) -> None:
        self.held: Held | None = None
        self.runs: dict[str, Run] = {}
        self.executed: list[Run] = []
        """The append-only log of effects."""
        self.acknowledged = 0

    def summary(self, alive: Collection[str] = ()) -> tuple[Any, ...]:
        """What of the past bears on the promises still to be kept; ``alive``: owners told of elsewhere."""
        return (
            self.acknowledged > 0,
            frozenset(
                (run.content, run.may_be_repeated, run.forgotten)
                for run in self.executed
                if run.owner not in alive
            ),
        )

    def appearance(self, now: float) -> object:
        """What the decision table sees in the record: a delivery that waits learns nothing new from
        a record that looks as it did."""
        if self.held is None:
            return None
        end = self.held.lease_end()
        return self.held.record.status, self.held.record.owner, end is not None and now >= end

    # --- the record ----------------------------------------------------------------------------

    def wrote(self, record: Record, etag: str, now: float, *, insert: bool) -> None:
        """A write took effect; ``record.owner`` is the attempt that asked for it."""
        before = self.held
        if before is None and record.status is not Status.IN_PROGRESS:
            raise Broken(f"a record that was gone came back as {record.status}")
        if before is not None:
            if insert:
                raise Broken("an insert replaced a record")
            self._check_replaced(before, record, now)
        self.held = Held(record, etag, now)

    def _check_replaced(self, before: Held, record: Record, now: float) -> None:
        old = before.record
        if old.status.is_finished:
            if old != record:
                raise Broken(f"a {old.status} record was changed")
            return
        if old.fingerprint != record.fingerprint:
            raise Broken("the fingerprint of a record was changed")
        if old.owner == record.owner:
            return
        if record.status is not Status.IN_PROGRESS:
            raise Broken(f"a superseded attempt wrote {record.status} over its successor's record")
        end = before.lease_end()
        if end is not None and now < end:
            raise Broken(f"a record was taken over {end - now:g} s before its lease ended")
        if record.attempt <= old.attempt:
            raise Broken("a takeover did not count the attempt")

    def deleted(self, owner: str) -> None:
        """A delete took effect, asked for by the attempt ``owner``."""
        if self.held is not None:
            if self.held.record.status.is_finished:
                raise Broken(f"a {self.held.record.status} record was deleted")
            if self.held.record.owner != owner:
                raise Broken("a superseded attempt deleted its successor's record")
        self.held = None
        if owner in self.runs:
            self.runs[owner].forgotten = True

    def committed(self, record: Record, documents: int, now: float) -> None:
        """A transaction of the inbox took effect, and left that many documents."""
        if self.held is not None:
            raise Broken("the transaction was committed twice")
        if documents != 2:
            raise Broken(
                f"a committed transaction left {documents} documents; one and its marker are due"
            )
        self.held = Held(record, "", now)
        run = self.runs[record.owner]
        run.executed = True
        self.executed.append(run)

    def renewal_asked(self, record: Record, now: float) -> None:
        """An attempt asks for its lease anew; after its deadline it must stop."""
        run = self.runs.get(record.owner)
        if run is None or now < run.renewed_until:
            return
        run.late_renewals += 1
        if run.late_renewals > 1:  # one may have been under way when the deadline passed
            raise Broken(f"{run.delivery} goes on renewing its lease past its deadline")

    # --- the handler ---------------------------------------------------------------------------

    def effect(self, run: Run) -> None:
        """A handler has its effect."""
        self._check_claim(run)
        for earlier in self.executed:
            if earlier is run:
                raise Broken("one attempt had its effect twice")
            if earlier.content != run.content and not earlier.forgotten:
                raise Broken("both contents of one key had their effect")
            if not earlier.may_be_repeated and not run.stalled:
                raise Broken(
                    f"{run.delivery} repeats the effect of {earlier.delivery}, whose attempt neither "
                    "crashed, nor lost its lease, nor failed"
                )
        run.executed = True
        self.executed.append(run)

    def _check_claim(self, run: Run) -> None:
        """An effect needs a claim; only a stalled attempt cannot know that it lost its own."""
        if run.stalled:
            return
        if self.held is None:
            raise Broken("an effect without a claim: the store holds nothing")
        record = self.held.record
        if record.owner != run.owner or record.status is not Status.IN_PROGRESS:
            raise Broken(f"an effect without a claim: the record is another's, {record.status}")

    # --- settlement ----------------------------------------------------------------------------

    def told(self, handled: Handled[Any], fingerprint: str) -> None:
        """A delivery was told its outcome."""
        record = self.held.record if self.held else None
        match handled.outcome:
            case Outcome.PROCESSED | Outcome.DUPLICATE:
                if record is None or record.status is not Status.COMPLETED:
                    state = "none" if record is None else f"one that is {record.status}"
                    raise Broken(f"{handled.outcome} without a completed record: there is {state}")
                if record.fingerprint != fingerprint:
                    raise Broken(f"{handled.outcome}, but the record is of other content")
                kept = None if record.result is None else msgspec.json.decode(record.result)
                if handled.result != kept:
                    raise Broken(f"{handled.outcome} with {handled.result}, recorded is {kept}")
            case Outcome.IN_FLIGHT | Outcome.MISMATCH:
                return
            case other:
                raise Broken(f"{other} is no outcome of this scenario: {handled.description}")

    def acknowledge(self) -> None:
        """The broker was told that a message is done: it will not come again."""
        if self.held is None or self.held.record.status is not Status.COMPLETED:
            raise Broken("acknowledged without a completed record")
        self.acknowledged += 1

    def check_end(self) -> None:
        """All messages are settled: nothing may be left half done."""
        if self._is_landed_claim():
            return
        if self.held is None or self.held.record.status is not Status.COMPLETED:
            state = (
                "nothing" if self.held is None else f"a record that is {self.held.record.status}"
            )
            raise Broken(f"all messages are settled, but the store holds {state}")
        if not self.acknowledged:
            raise Broken("all messages are settled, but none was acknowledged")
        effects = len({run.content for run in self.executed if not run.forgotten})
        if effects != 1:
            raise Broken(f"a provider that honours the downstream key counts {effects} effects")

    def _is_landed_claim(self) -> bool:
        """Whether all there is is a claim that landed after its message had been decided otherwise.

        No store can take such a request back. It ran nothing and its lease ends; what it costs is that
        a message of other content, which comes after it, is dead-lettered as a mismatch.
        """
        if self.held is None or self.executed or self.acknowledged:
            return False
        record = self.held.record
        return record.status is Status.IN_PROGRESS and record.owner not in self.runs
