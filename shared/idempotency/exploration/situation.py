"""Where a schedule stands, and what may happen next."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..protected import Protected
from .books import StepCall
from .deliveries import AT_BROKER, Deliveries
from .ledger import Ledger
from .machine import Interned, Machine
from .process import Point, Process
from .scenario import Scenario
from .seams import delivery_of, told_of
from .work import Fate, Work

_PAST_LEASE = 0.5

type _Open = list[tuple[int, Point]]


class Choice(NamedTuple):
    """What happens next, to the point, message, process or late request numbered ``at``."""

    what: str
    at: int = 0


class Situation:
    """The machine, the deliveries and the truth of one schedule, at this moment."""

    def __init__(
        self,
        scenario: Scenario,
        interned: Interned,
        machine: Machine,
        ledger: Ledger,
        work: Work,
        make: Callable[[], Protected],
    ) -> None:
        self.scenario = scenario
        self.machine = machine
        self.ledger = ledger
        self.deliveries = Deliveries(scenario, machine, ledger, work, make)
        self.faults_left = scenario.faults
        self._interned = interned
        self._counts_age = scenario.plan is not None and scenario.plan.counts_age()

    # --- what may happen next ------------------------------------------------------------------

    def choices(self) -> list[Choice]:
        """Everything that may happen next, in a fixed order; empty at the end of the schedule.

        Some decisions are made before anything else happens, because nothing that others do in
        between could make a difference: how a delivery's first call to the store goes as it arrives,
        what becomes of a handler as it begins, whether an outcome gets settled, how a provider answers
        at once, or that it does not.
        """
        points = list(self.machine.points.items())
        for number, point in points:
            if point.kind in ("handler", "settle"):
                return [Choice(Fate.PROCEED, number), *self._faults([(number, point)])]
            if point.kind in ("provider", "question") or (
                point.kind == "store" and point.process.arriving
            ):
                return [Choice("answer", number), *self._faults([(number, point)])]
        open_points: _Open = []
        found: list[Choice] = []
        calm = True  # nobody is between a request and its answer
        for number, point in points:
            match point.kind:
                case "store" if not point.looks or self._has_news(point):
                    calm = False
                    found.append(Choice("answer", number))
                    open_points.append((number, point))
                case "at work":
                    found.append(Choice(Fate.PROCEED, number))
                    open_points.append((number, point))
                case "under way":
                    if _may_be_answered(point):
                        found.append(Choice("answer", number))
                    open_points.append((number, point))
                case "pause" | "timer" if point.is_due(self.machine.now):
                    calm = False
                    found.append(Choice("wake", number))
        where = self.deliveries.where
        found.extend(Choice("deliver", i) for i, place in enumerate(where) if place is AT_BROKER)
        found.extend(Choice("land", number) for number in self._late())
        if calm and self.next_instant() is not None:
            found.append(Choice("time"))
        return found + self._faults(open_points)

    def _faults(self, open_points: _Open) -> list[Choice]:
        """What may go wrong next: each takes one of the faults left."""
        if not self.faults_left:
            return []
        found: list[Choice] = []
        dying: dict[int, int] = {}
        for number, point in open_points:
            dying.setdefault(point.process.group, point.process.index)
            match point.kind:
                case "store":
                    found.append(Choice("no answer", number))
                    found.append(Choice("cut off", number))
                case "at work":
                    found.append(Choice(Fate.RAISE, number))
                case "provider":
                    found += [Choice(what, number) for what in ("no answer", "not now", "slow")]
                    if isinstance(point.call, StepCall) and point.call.may_be_declined():
                        found.append(Choice("decline", number))
                case "question":
                    found += [Choice(what, number) for what in ("no answer", "slow", "cannot tell")]
                case "under way":
                    found.append(Choice("no answer", number))
                case "handler" if self.scenario.form == "inbox" or self.scenario.plan:
                    found.extend(Choice(fate, number) for fate in (Fate.RAISE, Fate.DAWDLE))
                case "handler":
                    found.extend(Choice(fate, number) for fate in Fate if fate is not Fate.PROCEED)
        found.extend(Choice("crash", index) for index in dying.values())
        if self.owner() is not None:
            found.append(Choice("stall"))
        return found

    def next_instant(self) -> float | None:
        """Until when time passes if nobody does anything; None when nobody waits for it."""
        now = self.machine.now
        instants = [
            point.due
            for point in self.machine.points.values()
            if now < point.due < math.inf and not (point.timer and point.timer.cancelled())
        ]
        end = self.lease_end()
        if end is not None and end > now and (instants or AT_BROKER in self.deliveries.where):
            instants.append(end)
        return min(instants, default=None)

    def lease_end(self) -> float | None:
        """When the record will surely be free, if a lease keeps it."""
        end = None if self.ledger.held is None else self.ledger.held.lease_end()
        return None if end is None else end + _PAST_LEASE

    def owner(self) -> Process | None:
        """The delivery whose attempt owns the record by a living lease."""
        held = self.ledger.held
        end = self.lease_end()
        if held is None or end is None or end <= self.machine.now:
            return None
        index, number = delivery_of(held.record.owner)
        process = self.deliveries.processes.get(index)
        return process if process is not None and process.number == number else None

    def _has_news(self, point: Point) -> bool:
        """Whether a look would tell anything new; otherwise the delivery would go on waiting."""
        now = self.machine.now
        return point.due <= now or point.process.seen != self.ledger.appearance(now)

    def _late(self) -> list[int]:
        """Late requests that could still have an effect; the others are forgotten."""
        late = self.machine.late
        for number in [n for n, (_, call) in late.items() if call.moot()]:
            del late[number]
        return list(late)

    # --- where it stands -----------------------------------------------------------------------

    def state(self) -> Any:
        """Equal for two schedules from which the same can follow.

        Times are relative to now, and messages alike are not told apart. Where a process stands
        follows from what it was told (its story), as everything in it is deterministic; whether an
        etag it was told is still the record's is said beside it.
        """
        held = self.ledger.held
        now = self.machine.now
        late: dict[Process, list[int]] = {}
        for number in self._late():
            process, call = self.machine.late[number]
            identity = (call.identity, call.seconds_left())
            late.setdefault(process, []).append(self._interned.number(identity))
        messages = sorted(
            self._message_state(index, late) for index in range(len(self.deliveries.where))
        )
        orphans = sorted(
            identity for process, found in late.items() if not process.alive for identity in found
        )
        alive = {owner for p in self.deliveries.processes.values() for owner in p.owners}
        return (
            self.faults_left,
            None if held is None else (told_of(held.record), now - held.written_at),
            self.ledger.acknowledged > 0,
            self.ledger.effects.summary(alive, now),
            0.0 if held is None or not self._counts_age else now - held.record.started_at,
            tuple(messages),
            tuple(orphans),
            self.deliveries.memory(now),
        )

    def _asked_for(self, process: Process) -> float:
        """How long ago a deliberating delivery first issued its call: its lease will count from then.

        Of a look, only whether it would still be repeated if it were not answered.
        """
        if not process.is_deciding():
            return 0.0
        ago = self.machine.now - process.asked_at
        return float(ago >= self.scenario.policy.lease) if process.looks else ago

    def _message_state(self, index: int, late: dict[Process, list[int]]) -> tuple[Any, ...]:
        message = self.scenario.messages[index]
        process = self.deliveries.processes.get(index)
        again = message.redelivered or self.deliveries.handed_out[index] > 0
        standing = (message.content, self.deliveries.where[index], again)
        if process is None:
            return standing
        now = self.machine.now
        held = self.ledger.held
        return (
            *standing,
            process.story,
            process.position(),
            process.looks,
            self._asked_for(process),
            now - (process.patient_from if process.is_deciding() else process.story_began_at),
            -1 if held is None else process.heard.get(held.etag, 0),
            -1 if held is None else process.own(held.record.owner),
            process.seen == self.ledger.appearance(now),
            bool(process.owners) and process.owners[-1] in process.stalled,
            tuple(self.ledger.effects.of_run(run) for run in process.runs),
            tuple(sorted(late.get(process, ()))),
        )


def _may_be_answered(point: Point) -> bool:
    """Whether a call that takes its time may still have its effect, or is a question."""
    return not isinstance(point.call, StepCall) or point.call.seconds_left() >= 0
