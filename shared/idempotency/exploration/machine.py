"""Where deliveries wait for the schedule to decide, and the virtual time they live in.

Between two decisions everything runs to quiescence, in an order that is always the same. Time stands
still unless a decision moves it.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ..errors import StoreUnavailable
from .loop import QuietLoop
from .process import Call, Late, Point, Process

_SHORT = 2.5
_COARSE = 10.0


class Line(NamedTuple):
    """One line of a trace; ``at`` is virtual time in seconds."""

    at: float
    who: str
    operation: str
    result: str

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.who:<4}  {self.operation:<30}  {self.result}"


class Interned:
    """Small numbers for histories, shared by all schedules of one exploration."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers) + 1)


class Machine:
    """Runs the processes of one schedule from point to point."""

    def __init__(self, interned: Interned, *, patience: float, tracing: bool) -> None:
        """``patience``: seconds that a delivery waits for another attempt, at the most."""
        self.now = 0.0
        self.points: dict[int, Point] = {}
        self.late: dict[int, Late] = {}
        self.trace: list[Line] = []
        self.broken: str | None = None
        self._current: Process | None = None
        self._patience = patience
        self.tracing = tracing
        self._closed = False
        self._interned = interned
        # asyncio's tasks ask a loop for far less than the abstract class lists
        self._loop = QuietLoop(  # type: ignore[abstract]
            lambda: self.now, self._timer_set, self._unhandled
        )
        self._made = 0

    # --- what running code may do --------------------------------------------------------------

    def running(self) -> Process:
        """The process whose code runs; an abandoned one is stopped here, before it reaches anything."""
        process = self._current
        if self._closed or process is None or not process.alive:
            raise asyncio.CancelledError
        return process

    async def call(self, call: Call) -> Any:
        """A store call; raises StoreUnavailable when the schedule says so."""
        process = self.running()
        if process.cut_off:
            self.note(process.name, call.operation, "no answer: cut off")
            raise StoreUnavailable("the store does not answer")
        point = Point("store", process, call.operation)
        point.call = call
        if asyncio.current_task(self._loop) is process.main:
            process.asked_at = process.asked_at if process.retrying else self.now
            process.retrying = False
            process.claims += call.identity is not None
        process.looks = process.waiting
        if process.waiting:
            process.waiting = False
            point.looks = True
            point.due = process.patient_from + self._patience
        return await self._wait(point)

    async def ask_for(self, kind: str, call: Call) -> Any:
        """A request to the provider; raises what the schedule says."""
        point = Point(kind, self.running(), call.operation)
        point.call = call
        return await self._wait(point)

    async def pause(self, seconds: float) -> None:
        """A pause. How long it takes in a schedule depends on what it is for.

        None takes no time. One before a retry, and one while another attempt is in flight, take none
        either, because the call that follows may take any time. One of a process that is cut off takes
        full tens of seconds. Any other, such as a heartbeat's, ends at its time.
        """
        process = self.running()
        if seconds <= 0:
            return
        task = asyncio.current_task(self._loop)
        if seconds <= _SHORT and not process.cut_off:
            if task is process.unanswered:
                process.unanswered = None
                process.retrying = task is process.main
                return
            if task is process.main and not process.is_at_work():
                process.waiting = True
                return
        point = Point("pause", process, f"pause of {seconds:.3g} s")
        point.due = self.now + seconds
        if process.cut_off:
            point.due = self.now + math.ceil(seconds / _COARSE) * _COARSE
        await self._wait(point)

    async def turn(self, kind: str, label: str) -> Any:
        """A point at which others may go first, or the process may die; what the schedule says there."""
        return await self._wait(Point(kind, self.running(), label))

    async def _wait(self, point: Point) -> Any:
        future = point.future = self._loop.create_future()
        point.task = asyncio.current_task(self._loop)
        number = self._add(point)
        try:
            return await future
        except asyncio.CancelledError:
            self._given_up(number)
            raise

    def _given_up(self, number: int) -> None:
        point = self.points.pop(number, None)
        if point is None or point.call is None or self._closed or not point.process.alive:
            return
        point.call.given_up()
        if point.call.identity is not None:  # the request is under way
            late = self.keep_late(Late(point.process, point.call))
            self.note(point.process.name, point.label, f"given up; request {late} may land later")

    # --- what the schedule does ----------------------------------------------------------------

    def start(
        self, process: Process, beginning: Any, main: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a new process up to its first point; ``beginning`` is what it knows from the start."""
        process.story = self._interned.number(beginning)
        process.patient_from = process.story_began_at = self.now
        self._current = process
        process.main = self._loop.create_task(main())
        self._quiesce()

    def resume(self, point: Point, *told: Any) -> None:
        """Note what a process was told, which is where it stands from now on, and let it go on.

        A delivery without an attempt decides by what the store told it last: what it was told before
        is forgotten, but for how long it has asked and waited, and what it found there.
        """
        process = point.process
        if told[0] == "answer" and point.task is process.main and process.is_deciding():
            # a lease counts from when it was asked for; how long a look took tells nothing
            asked_for = 0.0 if process.looks else self.now - process.asked_at
            story: Any = (told, asked_for, process.claims, len(process.owners), process.found)
            process.story_began_at = self.now
            process.points = 0
            process.heard = {etag: 0 for etag, at in process.heard.items() if at == point.ordinal}
        else:
            story = (process.story, point.ordinal, told, self.now - process.story_began_at)
        process.story = self._interned.number(story)
        process.arriving = False
        if point.timer is not None:
            self._loop.wake(point.timer)
        self._current = process
        self._quiesce()

    def keep_late(self, late: Late) -> int:
        """Keep an unanswered request: it may land at any later point, or never."""
        self._made += 1
        self.late[self._made] = late
        return self._made

    def abandon(self, process: Process) -> None:
        """Nothing of this process runs any more; what it has sent to the provider may still land."""
        process.alive = False
        for number, point in list(self.points.items()):
            if point.process is not process:
                continue
            del self.points[number]
            if point.call is not None and point.call.outlives_its_process:
                late = self.keep_late(Late(process, point.call))
                self.note(
                    process.name, point.label, f"was under way; request {late} may land later"
                )

    def break_(self, why: str) -> None:
        """Note the first promise that does not hold."""
        if self.broken is None and not self._closed:
            self.note("", "VIOLATION", why)
            self.broken = why

    def note(self, who: str, operation: str, result: str) -> None:
        """Write a line of the trace."""
        if self.tracing and not self._closed and self.broken is None:
            self.trace.append(Line(self.now, who, operation, result))

    def close(self) -> None:
        """Let every task end, without any of them reaching the store or the trace."""
        self._closed = True
        for _ in range(5):
            unfinished = [task for task in self._loop.tasks if not task.done()]
            if not unfinished:
                return
            for task in unfinished:
                task.cancel()
            self._loop.run_until_quiet()

    def _quiesce(self) -> None:
        if not self._loop.run_until_quiet():
            self.break_("the consumer runs in circles without a store call or a pause")
        self._current = None

    def _add(self, point: Point) -> int:
        self._made += 1
        self.points[self._made] = point
        return self._made

    def _timer_set(self, timer: asyncio.TimerHandle) -> None:
        if self._closed:
            return
        point = Point("timer", self.running(), "timer")
        point.timer = timer
        point.due = timer.when()
        self._add(point)

    def _unhandled(self, context: dict[str, Any]) -> None:
        self.break_(f"{context.get('message')}: {context.get('exception')!r}")
