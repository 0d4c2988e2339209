"""Sockets ↔ proton's protocol engine, on one thread that also runs what other threads ask for."""

import logging
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from proton import Collector, Connection, ProtonException, Transport

log = logging.getLogger(__name__)

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends a reset
_END_OF_STREAM = -1
_LONGEST_SLEEP = 60.0
_CALL_TIMEOUT = 30.0


class Handler(Protocol):
    """What stands behind the server: proton's events, and work after each round of them."""

    def handle(self, event: Any) -> None:
        """React to one event of the protocol engine."""

    def work(self) -> float | None:
        """Hand out what can be handed out; seconds until there is more to do, None: never."""

    def connection_lost(self, connection: Any) -> None:
        """Forget everything about a connection; it may have ended in any way."""


class Peer:
    """One client connection: its socket and its protocol engine."""

    def __init__(self, sock: socket.socket, collector: Any) -> None:
        self.socket = sock
        self.transport: Any = Transport(Transport.SERVER)
        self.connection: Any = Connection()
        self.connection.collect(collector)
        self.transport.bind(self.connection)
        self.broken = False

    def read(self) -> None:
        """Move bytes from the socket into the engine."""
        capacity = self.transport.capacity()
        if capacity <= 0:
            return
        received = self.socket.recv(capacity)
        if received:
            self.transport.push(received)
        else:
            self.transport.close_tail()

    def write(self) -> None:
        """Move bytes from the engine to the socket, as far as it takes them."""
        while (pending := self.transport.pending()) > 0:
            sent = self.socket.send(self.transport.peek(pending))
            self.transport.pop(sent)

    @property
    def is_over(self) -> bool:
        """Whether nothing will come or go any more."""
        return self.broken or self.transport.pending() == _END_OF_STREAM

    @property
    def interest(self) -> int:
        """The socket events to wait for."""
        reads = selectors.EVENT_READ if self.transport.capacity() > 0 else 0
        writes = selectors.EVENT_WRITE if self.transport.pending() > 0 else 0
        return reads | writes

    def close(self, *, reset: bool) -> None:
        """Let go of the socket; `reset`: without a word, as a crash would."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.socket.close()
        self.transport.unbind()


class Server:
    """The event loop. Everything but `start`, `stop` and `run` belongs to its own thread."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._collector = Collector()
        self._peers: dict[socket.socket, Peer] = {}
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- from any thread

    def start(self, host: str, port: int) -> int:
        """Listen and serve on a thread of its own; the port, or OSError if it is taken."""
        self._address = (host, port)
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakened = socket.socketpair()
        self._wakened.setblocking(False)
        self._selector.register(self._wakened, selectors.EVENT_READ)
        try:
            self.listen()
        except OSError:
            self._close_all()
            raise
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="servicebus", daemon=True)
        self._thread.start()
        return self._address[1]

    def stop(self) -> None:
        """Cut all connections, close the port, end the thread."""
        if self._thread is None:
            return
        self.run(self._stop)
        self._thread.join(_CALL_TIMEOUT)
        self._thread = None

    def run[T](self, function: Callable[[], T]) -> T:
        """Run a function on the server's thread, or here while there is none; its result."""
        if self._thread is None or threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it is the caller's to handle
                future.set_exception(error)

        self._calls.put(call)
        self.wake()
        return future.result(_CALL_TIMEOUT)

    def wake(self) -> None:
        """Make the loop look again at what fell due."""
        if self._thread is not None:
            self._waker.send(b"!")

    # ---------------------------------------------------------------- on the server's thread

    def listen(self) -> None:
        """Open the port; once a free one was found, the same one again."""
        listener = socket.create_server(self._address, backlog=128)
        listener.setblocking(False)
        self._listener = listener
        self._address = listener.getsockname()[:2]
        self._selector.register(listener, selectors.EVENT_READ)

    def close_port(self) -> None:
        """Refuse new connections."""
        self._selector.unregister(self._listener)
        self._listener.close()

    def drop(self, connection: Any) -> None:
        """Cut one connection without a word."""
        for peer in self._peers.values():
            if peer.connection == connection:
                peer.broken = True

    def drop_all(self) -> None:
        """Cut all connections without a word."""
        for peer in list(self._peers.values()):
            self._remove(peer, reset=True)

    def _stop(self) -> None:
        self._stopping = True
        self.close_port()
        self.drop_all()

    def _serve(self) -> None:
        pause: float | None = 0
        while not self._stopping:
            for key, mask in self._selector.select(pause):
                self._serve_socket(key.fileobj, mask)
            pause = self._settle_down()
        while not self._calls.empty():
            self._calls.get()()
        self._close_all()

    def _serve_socket(self, ready: Any, mask: int) -> None:
        if ready is self._wakened:
            self._wakened.recv(4096)
            while not self._calls.empty():
                self._calls.get()()
        elif ready in self._peers:
            self._move_bytes(self._peers[ready], mask)
        elif not self._stopping and ready is self._listener:
            self._accept()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the client is gone already
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[sock] = Peer(sock, self._collector)
        self._selector.register(sock, selectors.EVENT_READ)

    def _move_bytes(self, peer: Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                peer.read()
            if mask & selectors.EVENT_WRITE:
                peer.write()
        except BlockingIOError:
            pass
        except (OSError, ProtonException) as error:
            log.debug("connection lost: %s", error)
            peer.broken = True

    def _settle_down(self) -> float:
        """React to what came, hand out, write; seconds until the next look at the clock."""
        self._dispatch()
        pause = self._handler.work()
        self._dispatch()
        pauses = [_LONGEST_SLEEP, pause if pause is not None else _LONGEST_SLEEP]
        now = time.monotonic()
        for peer in list(self._peers.values()):
            deadline = peer.transport.tick(now)
            if deadline:
                pauses.append(deadline - now)
            self._move_bytes(peer, selectors.EVENT_WRITE)
            if peer.is_over:
                self._remove(peer, reset=peer.broken)
            else:
                self._selector.modify(peer.socket, peer.interest)
        return max(0.0, min(pauses))

    def _dispatch(self) -> None:
        while (event := self._collector.peek()) is not None:
            try:
                self._handler.handle(event)
            except Exception:  # one client's trouble must not end the broker
                log.exception("%s failed; its connection is cut", event.type)
                self.drop(event.connection)
            self._collector.pop()

    def _remove(self, peer: Peer, *, reset: bool) -> None:
        del self._peers[peer.socket]
        self._selector.unregister(peer.socket)
        self._handler.connection_lost(peer.connection)
        peer.close(reset=reset)

    def _close_all(self) -> None:
        self._selector.close()
        self._waker.close()
        self._wakened.close()
