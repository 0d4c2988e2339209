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
from contextlib import suppress
from typing import Any, Protocol

from proton import Collector, Connection, ProtonException, Transport

log = logging.getLogger(__name__)

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends a reset
_END_OF_STREAM = -1
_LONGEST_PAUSE = 60.0
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

    def move_bytes(self, mask: int) -> None:
        """Read into the engine, write out of it, as far as the socket goes along."""
        try:
            if mask & selectors.EVENT_READ:
                self._read()
            if mask & selectors.EVENT_WRITE:
                self._write()
        except BlockingIOError:
            return
        except (OSError, ProtonException) as error:
            log.debug("connection lost: %s", error)
            self.broken = True

    @property
    def is_over(self) -> bool:
        """Whether nothing will come or go any more."""
        if self.broken or self.transport.pending() == _END_OF_STREAM:
            return True
        return bool(self.transport.capacity() < 0 and self.transport.pending() <= 0)

    @property
    def interest(self) -> int:
        """The socket events to wait for."""
        reads = selectors.EVENT_READ if self.transport.capacity() >= 0 else 0
        writes = selectors.EVENT_WRITE if self.transport.pending() > 0 else 0
        return reads | writes

    def close(self) -> None:
        """Let go of the socket; if it broke, without a word, as a crash would."""
        if self.broken:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.socket.close()
        self.transport.unbind()

    def _read(self) -> None:
        capacity = self.transport.capacity()
        if capacity <= 0:
            return
        received = self.socket.recv(capacity)
        if received:
            self.transport.push(received)
        else:
            self.transport.close_tail()

    def _write(self) -> None:
        while (pending := self.transport.pending()) > 0:
            sent = self.socket.send(self.transport.peek(pending))
            self.transport.pop(sent)


class Server:
    """The event loop. `start`, `stop`, `run` and `wake` are for any thread, the rest its own."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._collector = Collector()
        self._peers: dict[socket.socket, Peer] = {}
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._life = threading.RLock()  # held while the thread begins or ends
        self._listener: socket.socket | None = None
        self._stopping = False

    # ---------------------------------------------------------------- from any thread

    def start(self, host: str, port: int) -> int:
        """Listen and serve on a thread of its own; the port, or OSError if it is taken."""
        with self._life:
            self._address = (host, port)
            self._selector = selectors.DefaultSelector()
            self._waker, self._wakened = socket.socketpair()
            self._wakened.setblocking(False)
            self._selector.register(self._wakened, selectors.EVENT_READ)
            try:
                self.open_port()
            except OSError:
                self._release()
                raise
            self._stopping = False
            self._thread = threading.Thread(target=self._serve, name="servicebus", daemon=True)
            self._thread.start()
            return self._address[1]

    def stop(self) -> None:
        """Cut all connections, close the port, end the thread."""
        with self._life:
            if self._thread is not None:
                self.run(self._stop)
                self._thread.join(_CALL_TIMEOUT)
                self._thread = None
                self._release()

    def run[T](self, function: Callable[[], T]) -> T:
        """Run a function on the server's thread, or here while there is none; its result."""
        if threading.current_thread() is self._thread:
            return function()
        with self._life:
            if self._thread is None:
                return function()
            future: Future[T] = Future()
            self._calls.put(lambda: _fulfil(future, function))
            self.wake()
        return future.result(_CALL_TIMEOUT)

    def wake(self) -> None:
        """Make the loop look again at what fell due."""
        if self._thread is not None:
            with suppress(OSError):  # it is just stopping
                self._waker.send(b"!")

    # ---------------------------------------------------------------- on the server's thread

    def open_port(self) -> None:
        """Accept connections; once a free port was found, on the same one again."""
        self._listener = socket.create_server(self._address, backlog=128)
        self._listener.setblocking(False)
        self._address = self._listener.getsockname()[:2]
        self._selector.register(self._listener, selectors.EVENT_READ)

    def close_port(self) -> None:
        """Refuse new connections."""
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def drop(self, connection: Any) -> None:
        """Cut one connection without a word."""
        for peer in self._peers.values():
            if peer.connection == connection:
                peer.broken = True

    def drop_all(self) -> None:
        """Cut all connections without a word."""
        for peer in self._peers.values():
            peer.broken = True
        self._bury_dead()

    def _stop(self) -> None:
        self._stopping = True
        self.close_port()
        self.drop_all()

    def _release(self) -> None:
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _serve(self) -> None:
        pause = 0.0
        while not self._stopping:
            for key, mask in self._selector.select(pause):
                self._serve_socket(key.fileobj, mask)
            self._dispatch()
            pause = min(self._work(), self._write())
        self._answer_calls()

    def _serve_socket(self, ready: Any, mask: int) -> None:
        if ready is self._wakened:
            self._wakened.recv(4096)
            self._answer_calls()
        elif ready in self._peers:
            self._peers[ready].move_bytes(mask)
        elif ready is self._listener:
            self._accept()

    def _answer_calls(self) -> None:
        while not self._calls.empty():
            self._calls.get()()

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the client is gone already
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[sock] = Peer(sock, self._collector)
        self._selector.register(sock, selectors.EVENT_READ)

    def _dispatch(self) -> None:
        """Let the handler react to all that came in, but for what came from the dead."""
        alive = {peer.connection: peer for peer in self._peers.values()}
        while (event := self._collector.peek()) is not None:
            peer = alive.get(event.connection)
            if peer is not None and not peer.broken:
                try:
                    self._handler.handle(event)
                except Exception:  # one client's trouble must not end the broker
                    log.exception("%s failed; its connection is cut", event.type)
                    peer.broken = True
            self._collector.pop()
        self._bury_dead()

    def _work(self) -> float:
        """Let the handler hand out; seconds until it will have more to do."""
        try:
            pause = self._handler.work()
        except Exception:
            log.exception("handing out failed")
            return 1.0
        return _LONGEST_PAUSE if pause is None else max(0.0, pause)

    def _write(self) -> float:
        """Send what there is to send; seconds until a connection needs its heartbeat."""
        now = time.monotonic()
        pause = _LONGEST_PAUSE
        for peer in self._peers.values():
            deadline = peer.transport.tick(now)
            if deadline:
                pause = min(pause, max(0.0, deadline - now))
            peer.move_bytes(selectors.EVENT_WRITE)
        self._bury_dead()
        for peer in self._peers.values():
            self._selector.modify(peer.socket, peer.interest)
        return pause

    def _bury_dead(self) -> None:
        for peer in [peer for peer in self._peers.values() if peer.is_over]:
            del self._peers[peer.socket]
            self._selector.unregister(peer.socket)
            self._handler.connection_lost(peer.connection)
            peer.close()


def _fulfil[T](future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - it is the caller's to handle
        future.set_exception(error)
