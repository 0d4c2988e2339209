"""The promises about named steps: when one may be called or asked about, and what the record must say."""

import json
import math
from collections.abc import Collection
from typing import Any

from ..attempt import Attempt
from ..decision import CLOCK_ALLOWANCE
from ..records import Outcome, Record, Status
from .books import Books, StepCall
from .truth import Broken, Held, Run


class StepEffects:
    """Holds what consumer and record do against the books of the provider.

    That a step happens once only, the books themselves find.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._plan = books.plan

    # --- at the provider -----------------------------------------------------------------------

    def begins(self, call: StepCall, held: Held | None) -> None:
        """An attempt calls a step."""
        books, step = self._books, call.step
        books.calls.append(call)
        contents = {entry.content for entry in books.happened}
        contents.update(other.run.content for other in books.on_their_way())
        if contents - {call.run.content}:
            raise Broken("steps of both contents of one key were called")
        if held is None or held.record.owner != call.run.owner:
            raise Broken(f"step {step!r} is called without a claim")
        if held.record.status is not Status.IN_PROGRESS:
            raise Broken(f"step {step!r} is called under a record that is {held.record.status}")
        left = held.written_at + held.record.lease - books.now()
        if left < self._plan.deadline:
            raise Broken(
                f"step {step!r} begins with {left:g} s of its lease left, but may take "
                f"{self._plan.deadline:g} s"
            )
        if any(done.name == step and done.done for done in held.record.steps):
            raise Broken(f"step {step!r} is recorded as done, and is called again")
        if books.may_land(step, but=call):
            raise Broken(
                f"step {step!r} is called again while an earlier call of it may still land"
            )

    def asked(self, step: str, attempt: Attempt, held: Held | None, *, stalled: bool) -> None:
        """An attempt asks what became of a step; one that is stalled cannot know that it may not."""
        if stalled:
            return
        if held is None or held.record.owner != attempt.owner:
            raise Broken(f"the provider is asked about {step!r} before the takeover is written")
        if self._books.may_land(step):
            raise Broken(
                f"the provider is asked about {step!r} while a call of it may still land: its no would "
                "mean not yet"
            )

    # --- what the record says ------------------------------------------------------------------

    def any(self) -> bool:
        return bool(self._books.happened)

    def wrote(self, before: Held | None, after: Held) -> None:
        record, status = after.record, after.record.status
        happened = self._books.steps()
        done = self._done(record, happened)
        if before is not None and status is not Status.COMPLETED:
            for old in before.record.steps:
                if old.done and old.name not in done:
                    raise Broken(f"a record that becomes {status} lost its step {old.name!r}")
        match status:
            case Status.IN_PROGRESS:
                return
            case Status.UNCERTAIN:
                self._check_uncertain(record)
                return
            case Status.QUARANTINED:
                self._check_quarantined(record)
            case Status.COMPLETED:
                self._check_completed(record, happened)
            case Status.FAILED if record.owner not in self._books.declined:
                raise Broken("a record becomes failed, and nothing was refused for good")
            case _ if forgotten := happened - done:
                raise Broken(
                    f"a record becomes {status} without {min(forgotten)!r}, which happened"
                )
        for call in self._books.on_their_way():
            raise Broken(f"a record becomes {status} while a call of {call.step!r} may still land")

    def _done(self, record: Record, happened: Collection[str]) -> set[str]:
        """The steps that a record has as done; they must have happened, with that result."""
        done = [step for step in record.steps if step.done]
        for step in done:
            if step.name not in happened:
                raise Broken(f"step {step.name!r} is recorded as done, and never happened")
            if step.result != json.dumps(self._books.receipt(step.name)):
                raise Broken(f"step {step.name!r} is recorded with {step.result}")
        return {step.name for step in done}

    def _check_completed(self, record: Record, happened: Collection[str]) -> None:
        result = json.loads(record.result or "{}")
        for step in self._plan.steps:
            if step not in happened and not self._plan.swallows:
                raise Broken(f"a record becomes completed, and {step!r} never happened")
            if (step in happened) != (step in result):
                raise Broken(
                    f"a record becomes completed with {result}, which is not true of {step!r}"
                )

    def _check_uncertain(self, record: Record) -> None:
        for call in self._books.on_their_way():
            if call.seconds_left() > record.settle + CLOCK_ALLOWANCE:
                raise Broken(
                    f"a record is uncertain for {record.settle:g} s, but a call of {call.step!r} may "
                    f"still land in {call.seconds_left():g} s"
                )

    def _check_quarantined(self, record: Record) -> None:
        if not any(not step.done for step in record.steps):
            raise Broken("quarantined, and no step in doubt is named")
        if not record.failure_reason or not record.failure_description:
            raise Broken("quarantined without a reason")
        if record.attempt < 2:
            raise Broken("quarantined by the first attempt at the key")
        if not self._may_quarantine(record):
            raise Broken(f"quarantined, though the policy is {self._plan.policy}")

    def _may_quarantine(self, record: Record) -> bool:
        plan, policy = self._plan, self._plan.policy
        if policy == "rerun":
            ends = record.started_at + plan.stated_retention
            if self._books.now() + plan.deadline + plan.settle < ends:
                return False
            policy = plan.then
        return policy == "quarantine" or record.owner in self._books.told_nothing

    def deleted(self, owner: str) -> None:
        for entry in self._books.happened:
            raise Broken(f"the record is deleted, and with it that {entry.step!r} happened")
        for call in self._books.on_their_way():
            raise Broken(f"the record is deleted while a call of {call.step!r} may still land")

    def allows(self, outcome: Outcome) -> bool:
        return outcome in (Outcome.QUARANTINED, Outcome.FAILED)

    def check_end(self, record: Record) -> None:
        """Nothing is left to check: a record that ends was checked when it was written."""

    # --- for the comparison of states ----------------------------------------------------------

    def of_run(self, run: Run) -> tuple[Any, ...]:
        return run.stalled, run.late_renewals

    def summary(self, alive: Collection[str], now: float) -> Any:
        """Who called does not matter any more, nor when, but to a provider that forgets its keys."""
        forgets = 0 < self._plan.key_retention < math.inf
        return frozenset(
            (entry.step, entry.content, now - entry.at if forgets else 0.0)
            for entry in self._books.happened
        )
