"""One delivery being handled, and the points where it waits."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .scenario import Message
from .truth import Run


class Call:
    """A request to the store.

    ``apply`` does it, at once, and answers. ``identity``: what a write would do, equal in equal states;
    None for a read. ``moot``: whether it can have no effect any more, however late it lands.
    """

    outlives_its_process = False
    """Whether it may land though its process died while it was under way."""

    def __init__(
        self,
        operation: str,
        apply: Callable[[], Any],
        identity: Any = None,
        moot: Callable[[], bool] = bool,
    ) -> None:
        self.operation = operation
        self.apply = apply
        self.identity = identity
        self.moot = moot

    def seconds_left(self) -> float:
        """For how long it may still land; 0 where that is not bounded by time."""
        return 0.0

    def given_up(self) -> None:
        """Its caller waits no longer."""


class Process:
    """One delivery being handled. ``story`` stands for all it was told so far: where it stands."""

    def __init__(self, index: int, message: Message, number: int, group: int) -> None:
        self.index = index
        self.message = message
        self.number = number
        self.group = group
        self.name = f"{message.name}#{number}"
        self.story = 0
        self.story_began_at = 0.0
        self.patient_from = 0.0
        self.alive = True
        self.arriving = True
        """Its first call to the store is still to come."""
        self.cut_off = False
        self.points = 0
        self.owners: list[str] = []
        self.runs: list[Run] = []
        self.stalled: set[str] = set()
        """The owners under which it was stalled past the end of its lease."""
        self.heard: dict[str, int] = {}
        """Which answer told it of an etag."""
        self.found: object = None
        """The status of the unfinished record of another that the store last told it of: an attempt
        remembers what it took over."""
        self.seen: object = None
        """What the record looked like when the store last answered."""
        self.main: asyncio.Task[Any] | None = None
        self.unanswered: asyncio.Task[Any] | None = None
        """The task whose request was not answered: its next pause is one before a retry."""
        self.asked_at = 0.0
        """When its main task first issued the request it is at, which may be a retry."""
        self.retrying = False
        self.claims = 0
        self.looks = False
        """Its last call was such a look."""
        self.waiting = False
        """It pauses because of another attempt; its next call is a look whether that goes on."""

    def is_at_work(self) -> bool:
        """Whether its handler runs."""
        return bool(self.runs) and not self.runs[-1].ended

    def is_deciding(self) -> bool:
        """Whether it is yet to have an attempt of its own, or has lost the one it had."""
        return not self.runs or self.runs[-1].owner != self.owners[-1]

    def own(self, owner: str) -> int:
        """Which of its owners that is; -1 for another's."""
        return self.owners.index(owner) if owner in self.owners else -1

    def position(self) -> tuple[int, ...]:
        """Where in its code the main task stands."""
        found: list[int] = []
        coroutine: Any = self.main.get_coro() if self.main is not None else None
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            found.append(frame.f_lasti)
            coroutine = coroutine.cr_await
        return tuple(found)


class Point:
    """Where a process waits: for the store, for a time, or for its turn to go on.

    ``kind`` is store, pause, timer, handler (about to begin, or between two steps), at work, provider
    (about to be called), question (about to be asked), under way (it takes its time to answer), or
    settle. ``looks``: a read that would tell nothing new unless the record looks different, or patience,
    at ``due``, is over.
    """

    __slots__ = (
        "call",
        "due",
        "future",
        "kind",
        "label",
        "looks",
        "ordinal",
        "process",
        "task",
        "timer",
    )

    def __init__(self, kind: str, process: Process, label: str) -> None:
        process.points += 1
        self.kind = kind
        self.process = process
        self.label = label
        self.ordinal = process.points
        self.future: asyncio.Future[Any] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.call: Call | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.due = math.inf
        self.looks = False

    def is_due(self, now: float) -> bool:
        """Whether a pause is over, or a timer that still matters has run out."""
        if self.timer is not None and self.timer.cancelled():
            return False
        return self.kind in ("pause", "timer") and self.due <= now

    def go_on(self, answer: Any = None, *, error: Exception | None = None) -> None:
        """Let the process go on with an answer, or with an error."""
        if self.future is None:
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)


class Late(NamedTuple):
    """A request that was not answered and may still take effect."""

    process: Process
    call: Call
