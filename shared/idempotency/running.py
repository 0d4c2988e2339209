"""Runs a handler under its lease: heartbeat beside it, cancelled at its deadline or when fenced."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any

from .attempt import Attempt, enter
from .clock import Clock
from .errors import StoreUnavailable
from .fencing import FencedRecord

_CANCELLATION_PATIENCE = 5.0
"""Seconds a cancelled handler is given to end before it counts as still running."""


class Stop(Enum):
    """Why a handler was cancelled by us."""

    DEADLINE = auto()
    FENCED = auto()
    LEASE_LOST = auto()
    """The store could not be reached to renew the lease in time; another attempt may own the record."""


class Stopped(Exception):
    """The handler was cancelled; ``still_running`` when it did not end (a thread cannot be stopped)."""

    def __init__(self, why: Stop, *, still_running: bool) -> None:
        super().__init__(why.name)
        self.why = why
        self.still_running = still_running


class StillRunning(asyncio.CancelledError):
    """We were cancelled, but the handler did not end: its record must not be released."""


async def run_leased[R](
    work: Callable[[], Awaitable[R]],
    attempt: Attempt,
    fenced: FencedRecord,
    clock: Clock,
    *,
    heartbeat: float,
) -> R:
    """The handler's result; its own exception; or Stopped.

    The heartbeat has ended when this returns, so that completion is the next write. When the caller
    is cancelled the handler is cancelled first, and the cancellation goes on (as StillRunning when
    the handler did not end).
    """

    async def run() -> R:
        enter(attempt)
        return await work()

    handler = asyncio.create_task(run())
    watch = asyncio.create_task(_watched(attempt, fenced, clock, heartbeat))
    try:
        await asyncio.wait({handler, watch}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if not await _ended(handler):
            raise StillRunning from None
        raise
    finally:
        await _ended(watch)
    if handler.done():
        return handler.result()
    still_running = not await _ended(handler)
    raise Stopped(watch.result(), still_running=still_running)


async def _watched(attempt: Attempt, fenced: FencedRecord, clock: Clock, heartbeat: float) -> Stop:
    """Renew the lease until the deadline; a hung handler must not live forever."""
    while True:
        left = attempt.deadline - clock.monotonic()
        await clock.sleep(min(heartbeat, max(left, 0.0)))
        if clock.monotonic() >= attempt.deadline:
            return Stop.DEADLINE
        try:
            if not await fenced.renew():
                return Stop.FENCED
        except StoreUnavailable:
            if fenced.lease_left() <= 0:
                return Stop.LEASE_LOST


async def _ended(task: "asyncio.Task[Any]") -> bool:
    """Cancel a task and see it end; False when it did not within the patience."""
    task.cancel()
    await asyncio.wait({task}, timeout=_CANCELLATION_PATIENCE)
    return task.done()


def as_work(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Awaitable[Any]]:
    """A call of a handler as asynchronous work; a synchronous handler runs in a thread.

    A thread cannot be cancelled: the work of a cancelled synchronous handler ends only when its
    function returns, which is what keeps its record from being released under its feet.
    """
    if inspect.iscoroutinefunction(handler):
        return lambda: handler(*args, **kwargs)

    async def in_thread() -> Any:
        running = asyncio.ensure_future(asyncio.to_thread(handler, *args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    return in_thread
