"""A proxy on loopback that loses what it is told to lose, below everything an SDK does for itself."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, Self

type Loss = Literal["request", "answer"]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Carries bytes to ``port`` on this machine and back, encrypted or not.

    After `lose` the next request is not carried and its connection reset ("request"), or it is
    carried, the server does what it asks, and the connection is reset in place of the answer
    ("answer"). The connection must have been used before: a handshake counts as an answer.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._next: Loss | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: list[Loss] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def lose(self, loss: Loss) -> None:
        """Lose the next request, or its answer."""
        self._next = loss

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)

        def drop() -> None:
            linger = writer.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, up_writer, "request", drop))
                both.create_task(self._carry(up_reader, writer, "answer", drop))
        except* ConnectionError:
            pass
        finally:
            up_writer.transport.abort()
            writer.transport.abort()

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        what: Loss,
        drop: Callable[[], None],
    ) -> None:
        while data := await source.read(65_536):
            if self._next == what:
                self._next = None
                self.lost.append(what)
                drop()
                raise ConnectionResetError(f"the {what} is lost")
            sink.write(data)
            await sink.drain()
        with contextlib.suppress(OSError):
            sink.write_eof() if sink.can_write_eof() else sink.close()


def losing(proxy: Proxy, loss: Loss) -> Callable[[], Awaitable[None]]:
    """A hook for the call that is to be lost."""

    async def arm() -> None:
        proxy.lose(loss)

    return arm
