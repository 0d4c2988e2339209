"""An event loop without real time or input: it runs what is ready, and stops when all wait."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any


class QuietLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in order until none is ready; timers are handed to whoever decides about time.

    ``on_timer`` takes each new timer, which becomes ready when it is given to `wake`. Nothing blocks
    and nothing reads a clock, so the same inputs give the same run.
    """

    def __init__(
        self,
        time: Callable[[], float],
        on_timer: Callable[[asyncio.TimerHandle], None],
        on_fault: Callable[[dict[str, Any]], None],
    ) -> None:
        self._time = time
        self._on_timer = on_timer
        self._on_fault = on_fault
        self._ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []

    def run_until_quiet(self, most: int = 100_000) -> bool:
        """Run everything that is ready; False when after ``most`` callbacks there is still more."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        ready = self._ready
        try:
            while ready and most:
                most -= 1
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(outer)
        return not ready

    def wake(self, timer: asyncio.TimerHandle) -> None:
        """Make a timer's callback ready."""
        self._ready.append(timer)

    # What asyncio's tasks, futures, locks and timeouts ask of their loop:

    def time(self) -> float:
        return self._time()

    def call_soon[*Args](
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later[*Args](
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time() + delay, callback, *args, context=context)

    def call_at[*Args](
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._on_timer(timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task[T](
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._on_fault(context)
