"""A way to a service on this machine that can be cut, or answer that the service is too busy."""

import http.client
import itertools
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

BUSY = (503, 429)
"""What Table Storage and Cosmos DB say when they throttle, by turns."""
_OF_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class AilingService:
    """Carries HTTP requests to ``port`` on this machine, until told that the service is ill.

    ``down``: every connection ends without an answer. ``busy``: every request is refused with a status
    of `BUSY`; the service never sees it. ``refused`` counts both.
    """

    def __init__(self, port: int) -> None:
        self.down = False
        self.busy = False
        self.refused = 0
        self.statuses = itertools.cycle(BUSY)
        self._target = port
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer_to(self, request: BaseHTTPRequestHandler) -> tuple[int, Any, bytes] | None:
        """Status, headers and body; None to hang up."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if self.down:
            self.refused += 1
            return None
        if self.busy:
            self.refused += 1
            return next(self.statuses), {"Retry-After": "1"}, b""
        service = http.client.HTTPConnection("127.0.0.1", self._target, timeout=10)
        try:
            service.request(request.command, request.path, body, dict(request.headers))
            answer = service.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            service.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        ailing = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                answer = ailing.answer_to(self)
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, body = answer
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_MERGE = do_PATCH = handle_any

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
