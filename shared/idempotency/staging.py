"""The stage of a rehearsal: processes that can die, and what outlives them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from .attempt import Attempt
from .clock import Clock
from .downstream import current_key
from .effects import Answer, DidNotHappen, Happened
from .testing import FakeClock


class Died(BaseException):
    """The process is gone: nothing of it runs any more, whatever it would still like to do."""


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in one play; calls are counted from 0 over all its processes.

    ``crashes``: after which calls the process that made it dies. ``fault`` befalls the call of an
    effect numbered ``at``: "unanswered" happened and times out, "lost" did not, "late" times out and
    happens ``late`` seconds after. ``again``: seconds after which the message comes once more;
    ``at_once``: it is handed out twice at the same time.
    """

    name: str
    crashes: frozenset[int] = frozenset()
    fault: str = ""
    at: int = -1
    again: float | None = None
    at_once: bool = False


class Process:
    """One process of one play: its store, its clock, its effects. All of it ends when the process dies."""

    def __init__(self, stage: "Stage", name: str) -> None:
        self.clock: Clock = stage.clock
        self.store: Any = _Seam(self, stage.store)
        self.name = name
        self.is_dead = False
        self.stage = stage

    def through(self, store: Any) -> Any:
        """Another thing in memory that outlives processes, such as a second store, as this one reaches it."""
        return _Seam(self, store)

    def effect(self, name: str, result: Any = None) -> Callable[..., Awaitable[Any]]:
        """A call that has the effect ``name`` and gives ``result``, in place of the real one."""

        async def have_effect(*_args: Any, **_kwargs: Any) -> Any:
            return await self.stage.have_effect(self, name, result)

        return have_effect

    async def ask(self, key: str, step: str, attempt: Attempt) -> Answer:
        """For `Reconcile`: whether the effect named like the step has happened."""
        happened = self.stage.happened
        return Happened(happened[step][-1]) if happened.get(step) else DidNotHappen()


class _Seam:
    """A store as one process reaches it: after any of its calls the process may die."""

    def __init__(self, process: Process, store: Any) -> None:
        self._process = process
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            stage, process = self._process.stage, self._process
            number = stage.called(process, name)
            answer = await found(*args, **kwargs)
            stage.over(process, number, name)
            return answer

        return call


class Stage:
    """What outlives the processes of one play: store, time, the truth about effects, the trace."""

    def __init__(
        self, play: Play, store: Callable[[Clock], Any], honours_keys: bool, late: float
    ) -> None:
        self.play = play
        self.clock = FakeClock()
        self.store = store(self.clock)
        self.happened: dict[str, list[Any]] = {}
        self.trace: list[str] = []
        self.calls: list[str] = []
        self._said, self._repeats = "", 0
        self._honours_keys = honours_keys
        self._late = late
        self._known: set[tuple[str, str]] = set()
        self._landing: list[asyncio.Task[None]] = []

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace; what repeats itself is one line, of the last time."""
        said = f"{who}: {what}"
        self._repeats = self._repeats + 1 if said == self._said else 1
        if said == self._said:
            self.trace.pop()
        self._said = said
        times = f" ({self._repeats} times)" if self._repeats > 1 else ""
        self.trace.append(f"{self.clock.monotonic():8.1f} s  {said}{times}")

    def called(self, process: Process, what: str) -> int:
        """The number of a call that begins."""
        if process.is_dead:
            raise Died
        self.calls.append(what)
        return len(self.calls) - 1

    def over(self, process: Process, number: int, what: str) -> None:
        """A call has done its work: its process hears of that, unless it dies first."""
        if process.is_dead:
            raise Died
        self.note(process.name, what)
        if number in self.play.crashes:
            process.is_dead = True
            self.note(process.name, f"DIES after call {number} ({what})")
            raise Died

    async def have_effect(self, process: Process, name: str, result: Any) -> Any:
        number = self.called(process, f"effect {name}")
        key = current_key() or f"{process.name}/{number}"
        fault = self.play.fault if number == self.play.at else ""
        if fault == "late":
            self._landing.append(asyncio.create_task(self._land(name, key, result)))
        elif fault != "lost":
            self._have(name, key, result)
        if fault:
            self.note(process.name, f"effect {name} FAULT {fault}")
            raise TimeoutError(f"effect {name}: {fault}")
        self.over(process, number, f"effect {name}")
        return result

    async def _land(self, name: str, key: str, result: Any) -> None:
        await self.clock.sleep(self._late)
        self.note("", f"effect {name} lands late")
        self._have(name, key, result)

    def _have(self, name: str, key: str, result: Any) -> None:
        if self._honours_keys and (name, key) in self._known:
            return
        self._known.add((name, key))
        self.happened.setdefault(name, []).append(result)

    async def close(self) -> None:
        await self.clock.advance(self._late)
        for landing in self._landing:
            landing.cancel()
