"""One schedule, made to happen choice by choice. The same choices give the same run, to the letter."""

from collections.abc import Callable
from typing import Any

from ..effects import CannotTell
from ..errors import PermanentFailure, StoreUnavailable, TransientFailure
from ..inbox_store import Refused, StoredDocument
from ..records import Status, Stored
from .books import Question, StepCall
from .machine import Interned, Line, Machine
from .process import Late, Point, Process
from .scenario import Scenario
from .seams import delivery_of, stored_in, told_of
from .situation import Choice, Situation
from .truth import Broken, kept_for
from .work import Fate, HandlerFailed
from .world import world_of

_ASLEEP = {"handler": "at work", "provider": "under way", "question": "under way"}
"""What becomes of the points of a delivery that stalls: it goes on when its turn comes."""


class Execution:
    """A schedule under way; its `situation` says where it stands and what may happen next."""

    def __init__(self, scenario: Scenario, interned: Interned, *, tracing: bool = False) -> None:
        self.machine = Machine(interned, patience=scenario.policy.wait, tracing=tracing)
        self._ledger, work, make = world_of(scenario, self.machine)
        self._names = [message.name for message in scenario.messages]
        self.situation = Situation(scenario, interned, self.machine, self._ledger, work, make)
        self._actions: dict[str, Callable[[int], None]] = {
            "deliver": self.situation.deliveries.hand_out,
            "answer": self._answer,
            "no answer": self._no_answer,
            "cut off": self._cut_off,
            "not now": self._not_now,
            "decline": self._decline,
            "slow": self._slow,
            "cannot tell": self._cannot_tell,
            "wake": self._wake,
            "crash": self._crash,
            "land": self._land,
            "time": self._pass_time,
            "stall": self._stall,
            **{fate.value: self._fate(fate) for fate in Fate},
        }

    @property
    def broken(self) -> str | None:
        """The promise that does not hold, once one does not."""
        return self.machine.broken

    @property
    def trace(self) -> list[Line]:
        """What happened, if it was asked for."""
        return self.machine.trace

    def apply(self, choice: Choice) -> None:
        """Let ``choice`` happen, and all that follows from it without a further choice."""
        try:
            self._actions[choice.what](choice.at)
            if self.situation.deliveries.all_settled():
                self._ledger.check_end()
        except Broken as broken:
            self.machine.break_(str(broken))

    def close(self) -> None:
        """Let everything end that still waits, without a trace."""
        self.machine.close()

    # --- the store -----------------------------------------------------------------------------

    def _answer(self, number: int) -> None:
        point = self.machine.points.pop(number)
        if point.call is None:
            return
        process = point.process
        answer = point.call.apply()
        self._note(point, self._shown(answer))
        process.seen = self._ledger.appearance(self.machine.now)
        point.go_on(answer)
        self.machine.resume(point, "answer", _told(process, point.ordinal, answer))

    def _no_answer(self, number: int) -> None:
        point = self._fault_at(number)
        later = ""
        if point.call is not None:
            point.call.given_up()
            if point.call.identity is not None:
                late = self.machine.keep_late(Late(point.process, point.call))
                later = f"; request {late} may land later"
        self._note(point, f"FAULT no answer{later}")
        if point.kind == "store":
            point.process.unanswered = point.task
            point.go_on(error=StoreUnavailable("the store does not answer"))
        else:
            point.go_on(error=TimeoutError("the provider does not answer"))
        self.machine.resume(point, "no answer")

    def _cut_off(self, number: int) -> None:
        point = self._fault_at(number)
        point.process.cut_off = True
        for run in point.process.runs:
            run.cut_off = True
        self._note(point, "FAULT cut off: from now on the store does not answer it")
        point.go_on(error=StoreUnavailable("the store does not answer"))
        self.machine.resume(point, "cut off")

    def _land(self, number: int) -> None:
        process, call = self.machine.late.pop(number)
        shown = self._shown(call.apply())
        self.machine.note(process.name, call.operation, f"request {number} lands late: {shown}")

    # --- the provider --------------------------------------------------------------------------

    def _not_now(self, number: int) -> None:
        self._refuse(number, "not now", TransientFailure("the provider cannot do it now"))

    def _decline(self, number: int) -> None:
        self._refuse(number, "decline", PermanentFailure("Declined", "the provider says no"))

    def _refuse(self, number: int, what: str, error: Exception) -> None:
        point = self._fault_at(number)
        if isinstance(point.call, StepCall):
            point.call.refused(for_good=isinstance(error, PermanentFailure))
        self._note(point, f"FAULT refused: {error}")
        point.go_on(error=error)
        self.machine.resume(point, what)

    def _slow(self, number: int) -> None:
        """The provider takes its time: the call stays under way while other things happen."""
        self.situation.faults_left -= 1
        point = self.machine.points[number]
        point.kind = "under way"
        self._note(point, "FAULT the provider takes its time")
        self.machine.resume(point, "slow")

    def _cannot_tell(self, number: int) -> None:
        point = self._fault_at(number)
        if isinstance(point.call, Question):
            point.call.cannot_be_told()
        self._note(point, "FAULT the provider cannot tell")
        point.go_on(CannotTell())
        self.machine.resume(point, "cannot tell")

    # --- handlers and processes ----------------------------------------------------------------

    def _fate(self, fate: Fate) -> Callable[[int], None]:
        def meet(number: int) -> None:
            point = self.machine.points.pop(number)
            if fate is not Fate.PROCEED:
                self.situation.faults_left -= 1
                self._note(point, f"FAULT the handler is going to {fate}")
            if fate is Fate.RAISE:
                point.go_on(error=HandlerFailed())
            else:
                point.go_on(fate)
            self.machine.resume(point, fate)

        return meet

    def _crash(self, index: int) -> None:
        self.situation.faults_left -= 1
        self.situation.deliveries.crash(index)

    # --- time ----------------------------------------------------------------------------------

    def _wake(self, number: int) -> None:
        point = self.machine.points.pop(number)
        self._note(point, "over")
        point.go_on()
        self.machine.resume(point, "wake")

    def _pass_time(self, _: int) -> None:
        """Let time pass; whoever waited for it goes on up to its next point."""
        self.machine.now = self.situation.next_instant() or self.machine.now
        self.machine.note("", "time passes", "")
        for number, point in list(self.machine.points.items()):
            if point.is_due(self.machine.now) and number in self.machine.points:
                self._wake(number)

    def _stall(self, _: int) -> None:
        """Let the owner of the record oversleep; it goes on at any later point."""
        process = self.situation.owner()
        held = self._ledger.held
        if process is None or held is None:
            return
        self.situation.faults_left -= 1
        self.machine.now = self.situation.lease_end() or self.machine.now
        process.stalled.add(held.record.owner)
        for run in process.runs:
            run.stalled = run.owner in process.stalled
        self.machine.note(process.name, "lease", "FAULT stalled until its lease was over")
        for point in self.machine.points.values():
            point.kind = _ASLEEP.get(point.kind, point.kind)

    # --- the trace -----------------------------------------------------------------------------

    def _fault_at(self, number: int) -> Point:
        self.situation.faults_left -= 1
        return self.machine.points.pop(number)

    def _note(self, point: Point, result: str) -> None:
        self.machine.note(point.process.name, point.label, result)

    def _shown(self, answer: Any) -> str:
        if not self.machine.tracing:
            return ""
        if isinstance(answer, StoredDocument):
            answer = stored_in(answer)
        if isinstance(answer, Stored):
            index, number = delivery_of(answer.record.owner)
            owner = f"{self._names[index]}#{number}"
            return f"{answer.record.status} of {owner}, age {answer.age:g} s"
        return {None: "nothing", True: "done", False: "refused"}.get(answer, str(answer))


def _told(process: Process, ordinal: int, answer: Any) -> Any:
    """What an answer tells a process, equal for equal answers in different schedules."""
    if isinstance(answer, Refused):
        return answer.index, answer.status
    if isinstance(answer, StoredDocument):
        answer = stored_in(answer)
    if not isinstance(answer, Stored):
        return answer
    process.heard[answer.etag] = ordinal
    record = answer.record
    own = process.own(record.owner)
    if own < 0:
        unfinished = record.status in (Status.IN_PROGRESS, Status.UNCERTAIN)
        process.found = record.status if unfinished else None
    # how old another's record is makes a difference only by its lease being over or not
    return told_of(record), own, answer.age if own >= 0 else answer.age >= kept_for(record)
