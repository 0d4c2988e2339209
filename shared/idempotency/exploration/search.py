"""Goes through all schedules of a scenario, depth first, each from the start; equal states once."""

import time
from collections.abc import Callable, Sequence

import msgspec

from ..errors import ConfigurationError
from ..records import Record
from .execution import Execution
from .machine import Interned, Line
from .scenario import Scenario
from .seams import Running, deterministic
from .situation import Choice

_MOST_STEPS = 500
_OFTEN = 0.05
"""Seconds between two looks at the processor's time."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in which a promise does not hold: its choices replay it, its trace tells it."""

    scenario: str
    promise: str
    choices: tuple[Choice, ...]
    trace: tuple[Line, ...]

    def __str__(self) -> str:
        lines = [f"{self.scenario}: {self.promise}"]
        lines += [f"{number:4}  {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join(lines)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule up to some point: its trace, how things stand there, and what might follow.

    ``record`` is what the store then holds, ``now`` the virtual time in seconds.
    """

    trace: tuple[Line, ...]
    promise: str | None
    """The promise that does not hold, if so."""
    record: Record | None
    now: float
    next: tuple[Choice, ...]


class Exploration(msgspec.Struct, kw_only=True):
    """What was found. ``schedules``: runs from the start, of which ``merged`` ended in a state that
    another run had reached, and ``finished`` with all messages settled."""

    scenario: str
    faults: int
    schedules: int = 0
    merged: int = 0
    finished: int = 0
    states: int = 0
    steps: int = 0
    longest: int = 0
    seconds: float = 0.0
    complete: bool = True
    """False when it was stopped before everything was seen."""
    violations: list[Violation] = []


type Progress = Callable[[Exploration], None]


def explore(
    scenario: Scenario,
    *,
    progress: Progress | None = None,
    most_violations: int = 1,
    most_seconds: float | None = None,
    merge: bool = True,
) -> Exploration:
    """Explore every schedule of ``scenario`` and stop after ``most_violations``.

    ``progress`` is told about once a second. ``most_seconds``, of processor time, stops it early (then
    ``complete`` is False). ``merge`` False goes through schedules again that come to an equal state:
    only for the smallest scenarios. It blocks until it is done, and may be called from a coroutine.
    """
    return _Search(scenario, progress, most_violations, most_seconds, merge).run()


def simplest(scenario: Scenario) -> Exploration:
    """Explore with no fault, then one, and so on up to the scenario's: the first with a violation."""
    for faults in range(scenario.faults):
        found = explore(msgspec.structs.replace(scenario, faults=faults))
        if found.violations:
            return found
    return explore(scenario)


def explained(
    scenario: Scenario, *, progress: Progress | None = None, most_seconds: float | None = None
) -> Exploration:
    """Explore; a violation is then told by the simplest schedule that shows one."""
    found = explore(scenario, progress=progress, most_seconds=most_seconds)
    if found.violations and scenario.faults:
        found.violations = simplest(scenario).violations
    return found


def replay(scenario: Scenario, choices: Sequence[Choice]) -> Replay:
    """The schedule made of ``choices``."""
    running = Running()
    with deterministic(running):
        return _replayed(scenario, running, choices)


class _Step(msgspec.Struct):
    """One step of the schedule under way: what was chosen where, and what else there is to choose."""

    state: object
    chosen: Choice
    untried: list[Choice]


class _Search:
    def __init__(
        self,
        scenario: Scenario,
        progress: Progress | None,
        most_violations: int,
        most_seconds: float | None,
        merge: bool,
    ) -> None:
        self._scenario = scenario
        self._progress = progress
        self._most_violations = most_violations
        self._most_seconds = most_seconds
        self._merge = merge
        self._interned = Interned()
        self._seen: set[object] = set()
        self._found = Exploration(scenario=scenario.name, faults=scenario.faults)
        self._running = Running()

    def run(self) -> Exploration:
        found = self._found
        began = told = now = time.process_time()
        looked = time.monotonic()
        path: list[_Step] = []
        with deterministic(self._running):
            while True:
                self._go(path)
                while path and not path[-1].untried:
                    path.pop()
                # asking for processor time may take longer than a schedule does
                if not path or found.violations or time.monotonic() - looked >= _OFTEN:
                    looked, now = time.monotonic(), time.process_time()
                    found.seconds, found.states = now - began, len(self._seen)
                if not path:
                    return found
                if len(found.violations) >= self._most_violations or (
                    self._most_seconds is not None and found.seconds > self._most_seconds
                ):
                    found.complete = False
                    return found
                path[-1].chosen = path[-1].untried.pop(0)
                if self._progress is not None and now - told >= 1:
                    told = now
                    self._progress(found)

    def _go(self, path: list[_Step]) -> None:
        """Run ``path`` from the start, then on to its end or to a known state, growing ``path``."""
        found = self._found
        found.schedules += 1
        execution = Execution(self._scenario, self._interned)
        self._running.machine = execution.machine
        for step in path[:-1]:
            execution.apply(step.chosen)
        if path:
            if execution.situation.state() != path[-1].state:
                raise ConfigurationError(
                    "the same choices led to another state: something in the consumer or its store is "
                    "neither told by a store call nor derived from the clock, uuid4 or random.uniform"
                )
            execution.apply(path[-1].chosen)
        while execution.broken is None:
            state = execution.situation.state()
            if state in self._seen:
                if any(step.state == state for step in path):
                    execution.machine.break_("the deliveries go round for ever")
                    break
                if self._merge:
                    found.merged += 1
                    break
            self._seen.add(state)
            choices = execution.situation.choices()
            if not choices:
                found.finished += 1
                if not execution.situation.deliveries.all_settled():
                    execution.machine.break_("a message is not settled, and nothing can happen")
                break
            if len(path) >= _MOST_STEPS:
                execution.machine.break_(f"the schedule does not end within {_MOST_STEPS} steps")
                break
            path.append(_Step(state, choices[0], choices[1:]))
            execution.apply(choices[0])
        execution.close()
        found.steps += len(path)
        found.longest = max(found.longest, len(path))
        if execution.broken is not None:
            self._violated(execution.broken, tuple(step.chosen for step in path))

    def _violated(self, promise: str, choices: tuple[Choice, ...]) -> None:
        replayed = _replayed(self._scenario, self._running, choices)
        self._found.violations.append(
            Violation(
                scenario=self._scenario.name,
                promise=promise,
                choices=choices,
                trace=replayed.trace,
            )
        )


def _replayed(scenario: Scenario, running: Running, choices: Sequence[Choice]) -> Replay:
    execution = Execution(scenario, Interned(), tracing=True)
    running.machine = execution.machine
    for choice in choices:
        execution.apply(choice)
    situation = execution.situation
    held = situation.ledger.held
    replayed = Replay(
        trace=tuple(execution.trace),
        promise=execution.broken,
        record=None if held is None else held.record,
        now=execution.machine.now,
        next=tuple(situation.choices()),
    )
    execution.close()
    return replayed
