"""Runs a handler under its lease: heartbeat beside it, cancelled at its deadline or when fenced."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any

from .attempt import Attempt, enter
from .clock import Clock, finished_within
from .decision import CLOCK_ALLOWANCE
from .errors import DeadlineExceeded, StoreUnavailable
from .fencing import FencedRecord

_CANCELLATION_PATIENCE = 5.0
"""Seconds a cancelled handler is given to end before it counts as still running."""


class Stop(Enum):
    """Why a handler was cancelled."""

    DEADLINE = auto()
    FENCED = auto()
    LEASE_LOST = auto()
    """The store could not be reached to renew the lease in time; another attempt may own the record."""
    CANCELLED = auto()
    """The caller was cancelled, such as by the host's shutdown."""
    BROKEN = auto()
    """The heartbeat raised what it never should."""


class Run[R]:
    """How a handler's run ended.

    ``stop`` tells why the handler was cancelled, None when it ended by itself; a handler may well
    return a result after it was cancelled. ``cause`` is what the caller is to be told of a
    cancellation or of a broken heartbeat.
    """

    def __init__(
        self,
        handler: "asyncio.Task[R]",
        stop: Stop | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self._handler = handler
        self.stop = stop
        self.cause = cause

    @property
    def still_running(self) -> bool:
        """The handler did not end though cancelled: a thread cannot be stopped."""
        return not self._handler.done()

    @property
    def error(self) -> BaseException | None:
        """What the handler raised; None when it returned."""
        try:
            return self._handler.exception()
        except asyncio.CancelledError as cancelled:
            return cancelled

    @property
    def result(self) -> R:
        """What the handler returned."""
        return self._handler.result()


async def run_leased[R](
    work: Callable[[], Awaitable[R]],
    attempt: Attempt,
    fenced: FencedRecord,
    clock: Clock,
    *,
    heartbeat: float,
) -> Run[R]:
    """Run the handler to its end, and say how it ended; raises nothing of its own.

    After this no renewal is begun; one that is under way holds the record's lock, so that the next
    write comes after it.
    """

    async def run() -> R:
        enter(attempt)
        return await work()

    # a task of its own: the context variables end with it, and it can be cancelled by itself
    handler = asyncio.create_task(run())
    handler.add_done_callback(noted)
    watch = asyncio.create_task(_watched(attempt, fenced, clock, heartbeat))
    watch.add_done_callback(noted)
    try:
        await asyncio.wait({handler, watch}, return_when=asyncio.FIRST_COMPLETED)
        if handler.done():
            return Run(handler)
        await ended(handler, clock)
    except asyncio.CancelledError as cancelled:
        await ended(handler, clock)
        return Run(handler, Stop.CANCELLED, cancelled)
    finally:
        watch.cancel()
    broken = watch.exception()
    return Run(handler, Stop.BROKEN, broken) if broken else Run(handler, watch.result())


async def run_unleased[R](
    work: Callable[[], Awaitable[R]],
    attempt: Attempt,
    clock: Clock,
    *,
    begin: Callable[[], None],
) -> R:
    """The handler's result, where nothing has happened until it is committed: so it needs no lease.

    ``begin`` is called in the handler's own context, before it. Raises what the handler raised, and
    DeadlineExceeded at the attempt's deadline.
    """

    async def run() -> R:
        enter(attempt)
        begin()
        return await work()

    # a task of its own: the context variables end with it
    handler = asyncio.create_task(run())
    handler.add_done_callback(noted)
    seconds = attempt.deadline - clock.monotonic()
    try:
        if not await finished_within(handler, seconds, clock):
            raise DeadlineExceeded(
                f"consumer {attempt.consumer}: the handler did not finish within {seconds:g} s; nothing was "
                "written, and the message comes back"
            )
    finally:
        handler.cancel()  # nothing, when it has ended; otherwise it works for nobody
    return handler.result()


async def _watched(attempt: Attempt, fenced: FencedRecord, clock: Clock, heartbeat: float) -> Stop:
    """Renew the lease until the deadline; a hung handler must not live forever."""
    pause = heartbeat
    while True:
        await clock.sleep(max(0.0, min(pause, attempt.deadline - clock.monotonic())))
        if clock.monotonic() >= attempt.deadline:
            return Stop.DEADLINE
        renewal = asyncio.create_task(fenced.renew())
        renewal.add_done_callback(noted)
        # others honour the lease a little beyond its end: after a blocked event loop there is one try
        left = max(fenced.lease_left(), CLOCK_ALLOWANCE)
        until_deadline = attempt.deadline - clock.monotonic()
        if not await finished_within(renewal, min(left, until_deadline), clock):
            renewal.cancel()
            return Stop.DEADLINE if clock.monotonic() >= attempt.deadline else Stop.LEASE_LOST
        try:
            if not renewal.result():
                return Stop.FENCED
            pause = heartbeat
        except StoreUnavailable:
            if fenced.lease_left() <= 0:
                return Stop.LEASE_LOST
            pause = min(heartbeat / 4, fenced.lease_left())


async def ended(task: "asyncio.Task[Any]", clock: Clock) -> bool:
    """Cancel a task and see it end; False when it did not within the patience."""
    task.cancel()
    return await finished_within(task, _CANCELLATION_PATIENCE, clock)


def noted(task: "asyncio.Task[Any]") -> None:
    """Take notice of a task's exception, which asyncio would otherwise complain about."""
    if not task.cancelled():
        task.exception()


def _is_async(handler: Callable[..., Any]) -> bool:
    while isinstance(handler, functools.partial):
        handler = handler.func
    called = getattr(type(handler), "__call__", None)  # noqa: B004 - an object's own, if it is async
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)


def as_work(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Awaitable[Any]]:
    """A call of a handler as asynchronous work; a synchronous handler runs in a thread.

    A thread cannot be cancelled: the work of a cancelled synchronous handler ends only when its
    function returns, which is what keeps its record from being released under its feet.
    """
    if _is_async(handler):
        return functools.partial(handler, *args, **kwargs)

    async def in_thread() -> Any:
        running = asyncio.ensure_future(asyncio.to_thread(handler, *args, **kwargs))
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                continue  # its effects are open until it returns, however often we are cancelled
        result = running.result()
        # a plain function that returns a coroutine: unawaited, it would complete without running
        return await result if inspect.isawaitable(result) else result

    return in_thread
