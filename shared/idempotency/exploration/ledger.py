"""The truth of one schedule about its one key: the record, and what messages were told; its promises.

A promise that does not hold raises `Broken` at the very step that breaks it. The promises about the
effects themselves are in `plain` and `stepwise`.
"""

from typing import Any

import msgspec

from ..records import Handled, Outcome, Record, Status
from .truth import Broken, EffectPromises, Held, Run


class Ledger:
    """What the store truly holds, and what follows for those who were told."""

    def __init__(self, effects: EffectPromises, *, most_late: int = 1) -> None:
        """``most_late``: how many writes of one attempt may keep it in progress after its deadline: one
        renewal may have been under way when it passed, and so may the record of a step."""
        self.held: Held | None = None
        self.runs: dict[str, Run] = {}
        self.effects = effects
        self.acknowledged = 0
        self._most_late = most_late

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
            _check_replaced(before, record, now)
        self.held = Held(record, etag, now)
        self.effects.wrote(before, self.held)

    def deleted(self, owner: str) -> None:
        """A delete took effect, asked for by the attempt ``owner``."""
        if self.held is not None:
            status = self.held.record.status
            if status.is_finished or status is Status.QUARANTINED:
                raise Broken(f"a {status} record was deleted")
            if self.held.record.owner != owner:
                raise Broken("a superseded attempt deleted its successor's record")
        self.held = None
        if owner in self.runs:
            self.runs[owner].forgotten = True
        self.effects.deleted(owner)

    def committed(self, record: Record, documents: int, now: float) -> None:
        """A transaction of the inbox took effect, and left that many documents."""
        if self.held is not None:
            raise Broken("the transaction was committed twice")
        if documents != 2:
            raise Broken(
                f"a committed transaction left {documents} documents; one and its marker are due"
            )
        self.held = Held(record, "", now)

    def renewal_asked(self, record: Record, now: float) -> None:
        """An attempt asks for its lease anew; after its deadline it must stop."""
        run = self.runs.get(record.owner)
        if run is None or now < run.renewed_until:
            return
        run.late_renewals += 1
        if run.late_renewals > self._most_late:
            raise Broken(f"{run.delivery} goes on renewing its lease past its deadline")

    def check_claim(self, run: Run) -> None:
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
        outcome = handled.outcome
        record = self.held.record if self.held else None
        if outcome in (Outcome.IN_FLIGHT, Outcome.MISMATCH):
            return
        if outcome in (Outcome.QUARANTINED, Outcome.FAILED) or handled.failed:
            self._told_to_stop(handled, record)
            return
        if outcome not in (Outcome.PROCESSED, Outcome.DUPLICATE):
            raise Broken(f"{outcome} is no outcome of this scenario: {handled.description}")
        if record is None or record.status is not Status.COMPLETED:
            state = "none" if record is None else f"one that is {record.status}"
            raise Broken(f"{outcome} without a completed record: there is {state}")
        if record.fingerprint != fingerprint:
            raise Broken(f"{outcome}, but the record is of other content")
        kept = None if record.result is None else msgspec.json.decode(record.result)
        if handled.result != kept:
            raise Broken(f"{outcome} with {handled.result}, recorded is {kept}")

    def _told_to_stop(self, handled: Handled[Any], record: Record | None) -> None:
        """A delivery is to be dead-lettered: with the record that says so, and the reason."""
        due = Status.QUARANTINED if handled.outcome is Outcome.QUARANTINED else Status.FAILED
        if not self.effects.allows(Outcome(due.value)):
            raise Broken(f"{due} is no outcome of this scenario: {handled.description}")
        if record is None or record.status is not due:
            state = "none" if record is None else f"one that is {record.status}"
            raise Broken(f"told {due} without such a record: there is {state}")
        if not handled.reason or not handled.description:
            raise Broken(f"{due} without a reason for the dead letter")

    def acknowledge(self) -> None:
        """The broker was told that a message is done: it will not come again."""
        if self.held is None or self.held.record.status is not Status.COMPLETED:
            raise Broken("acknowledged without a completed record")
        self.acknowledged += 1

    def check_end(self) -> None:
        """All messages are settled: nothing may be left half done."""
        if self._is_landed_claim():
            return
        status = None if self.held is None else self.held.record.status
        stopped = (Status.QUARANTINED, Status.FAILED)
        if self.held is None or status not in (Status.COMPLETED, *stopped):
            state = "nothing" if self.held is None else f"a record that is {status}"
            raise Broken(f"all messages are settled, but the store holds {state}")
        if status is Status.COMPLETED and not self.acknowledged:
            raise Broken("all messages are settled, but none was acknowledged")
        self.effects.check_end(self.held.record)

    def _is_landed_claim(self) -> bool:
        """Whether all there is is a claim that landed after its message had been decided otherwise.

        No store can take such a request back. It ran nothing and its lease ends; what it costs is that
        a message of other content, which comes after it, is dead-lettered as a mismatch.
        """
        if self.held is None or self.effects.any() or self.acknowledged:
            return False
        record = self.held.record
        return record.status is Status.IN_PROGRESS and record.owner not in self.runs


def _check_replaced(before: Held, record: Record, now: float) -> None:
    old = before.record
    if old.status.is_finished or old.status is Status.QUARANTINED:
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
