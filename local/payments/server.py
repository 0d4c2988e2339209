"""An aiohttp application on a thread and a loop of its own."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from aiohttp import web

CALL_TIMEOUT = 30.0


class Server:
    """Serves one application at a time. All methods are for any thread but its own."""

    def __init__(self) -> None:
        self._life = threading.RLock()  # held while the thread begins, ends, or is asked
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def start(self, application: Callable[[], web.Application], host: str, port: int) -> int:
        """Listen and serve; the port, or OSError if it is taken.

        application: builds what to serve, on the server's thread.
        """
        with self._life:
            if self._thread is not None:
                raise RuntimeError("already started")
            ready: Future[int] = Future()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._serve(application, host, port, ready)),
                name="payments",
                daemon=True,
            )
            self._thread.start()
            try:
                return ready.result(CALL_TIMEOUT)
            except BaseException:
                self._thread.join(CALL_TIMEOUT)
                self._thread = None
                raise

    def stop(self) -> None:
        """Cut all connections, close the port, end the thread; nothing when none runs."""
        with self._life:
            if self._thread is None or self._loop is None or self._stopping is None:
                return
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(CALL_TIMEOUT)
            self._thread = self._loop = self._stopping = None

    def run[T](self, function: Callable[[], T]) -> T:
        """Run a function on the server's thread, or here while there is none; its result."""
        with self._life:
            if self._loop is None:
                return function()
            result: Future[T] = Future()
            self._loop.call_soon_threadsafe(lambda: _fulfil(result, function))
            return result.result(CALL_TIMEOUT)

    async def _serve(
        self,
        application: Callable[[], web.Application],
        host: str,
        port: int,
        ready: Future[int],
    ) -> None:
        # Cancelling tells a handler that its caller has left; there is nobody to wait for.
        runner = web.AppRunner(
            application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.05
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            ready.set_result(runner.addresses[0][1])
            await self._stopping.wait()
        except OSError as error:
            ready.set_exception(error)
        finally:
            await runner.cleanup()


def _fulfil[T](future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - it is the caller's to handle
        future.set_exception(error)
