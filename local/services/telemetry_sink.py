"""Application Insights on this machine: takes what the real exporter posts, and answers for it.

    with TelemetrySink() as sink:
        start_app(environment=os.environ | sink.environment())
        ...
        sink.wait_for(lambda s: s.total("idempotency.deliveries") == 10, timeout=10)
        sink.total("idempotency.duplicates", consumer="process_order")

Another process, or a person, asks over HTTP:

    curl 'http://127.0.0.1:PORT/query?metric=idempotency.duplicates&consumer=process_order'
"""

import gzip
import json
import shutil
import tempfile
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from local.services.processes import LOOPBACK
from local.services.telemetry_envelopes import Envelope, Metric, read


class TelemetrySink:
    """Everything posted to it while the context lasts.

    port: a fixed port; the system chooses when it is 0.

    Its instrumentation key is new each time, and nothing under another key counts: the
    exporter keeps what it could not deliver on disk, by that key, and posts it in a later run.
    """

    def __init__(self, *, port: int = 0) -> None:
        self.port = port
        self.instrumentation_key = str(uuid.uuid4())
        self._arrived: list[Envelope] = []
        self._arrival = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens, with a slash at the end."""
        return f"http://{LOOPBACK}:{self.port}/"

    @property
    def connection_string(self) -> str:
        """For `APPLICATIONINSIGHTS_CONNECTION_STRING`."""
        return (
            f"InstrumentationKey={self.instrumentation_key};"
            f"IngestionEndpoint={self.url};LiveEndpoint={self.url}"
        )

    def environment(self, *, export_seconds: float = 1.0) -> dict[str, str]:
        """The settings with which an app sends everything here, soon, and nothing elsewhere.

        export_seconds: how long measurements, spans and log lines wait for company. A process
            that is killed takes what it has not sent with it.
        """
        milliseconds = str(int(export_seconds * 1000))
        return {
            "APPLICATIONINSIGHTS_CONNECTION_STRING": self.connection_string,
            "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "true",
            "OTEL_METRIC_EXPORT_INTERVAL": milliseconds,
            "OTEL_BSP_SCHEDULE_DELAY": milliseconds,
            "OTEL_BLRP_SCHEDULE_DELAY": milliseconds,
            # The default sampler lets five traces a second through, and not the first ones. Based on
            # the parent: what the host does beside the app is under one that is not sampled.
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
            # Each of these would call a host on the internet, or Azure's metadata address.
            "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
            "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "azure_functions",
        }

    def start(self) -> Self:
        """Begin to listen. Raises OSError when a fixed port is taken."""
        self._server = _Server((LOOPBACK, self.port), self)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="telemetry-sink"
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Listen no more; what has arrived can still be asked for."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None
        kept = f"Microsoft-AzureMonitor-*/opentelemetry-python-{self.instrumentation_key}"
        # The parent is of this key alone as well: its name is a hash of the key and more.
        for folder in Path(tempfile.gettempdir()).glob(kept):
            shutil.rmtree(folder.parent, ignore_errors=True)

    def envelopes[E: Envelope](self, kind: type[E]) -> list[E]:
        """What has arrived of one kind, in order of arrival; of every kind for `Envelope`."""
        with self._arrival:
            return [envelope for envelope in self._arrived if isinstance(envelope, kind)]

    def metrics(self, name: str | None = None, **attributes: str) -> list[Metric]:
        """The measurements of that name which have all these attributes; all by default."""
        return [
            metric
            for metric in self.envelopes(Metric)
            if name in (None, metric.name) and attributes.items() <= metric.attributes.items()
        ]

    def total(self, name: str, **attributes: str) -> float:
        """The sum of a counter, or of a histogram's values, over all processes that sent any.

        attributes: only those measurements that have all of them. A name with dots goes in
            as ``**{"some.name": value}``.

        The exporter posts increases, so the sum is the total. It is meaningless for gauges
        and up-down counters, which post their present value.
        """
        return sum(metric.value for metric in self.metrics(name, **attributes))

    def wait_for(self, condition: Callable[["TelemetrySink"], object], timeout: float) -> None:
        """Wait until the condition holds, looking again at each arrival.

        timeout: seconds. Raises TimeoutError, naming the totals there are, when they are over.
        """
        with self._arrival:
            if not self._arrival.wait_for(lambda: condition(self), timeout):
                names = sorted({m.name for m in self.metrics() if not m.name.startswith("\\")})
                seen = ", ".join(f"{name} = {self.total(name):g}" for name in names) or "no metric"
                raise TimeoutError(f"not within {timeout:g} s; arrived so far: {seen}")

    def accept(self, posted: list[Mapping[str, Any]]) -> None:
        """Take in one post of the exporter."""
        arrived = [
            content
            for envelope in posted
            if envelope.get("iKey") == self.instrumentation_key
            for content in read(envelope)
        ]
        with self._arrival:
            self._arrived += arrived
            self._arrival.notify_all()


_MALFORMED = (zlib.error, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], sink: TelemetrySink) -> None:
        self.sink = sink
        super().__init__(address, _Endpoint)


class _Endpoint(BaseHTTPRequestHandler):
    """The addresses the exporter knows, and `/query`."""

    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match urlsplit(self.path).path.rstrip("/"):
            case "/v2.1/track" | "/v2/track":
                self._track(body)
            case "/QuickPulseService.svc/ping" | "/QuickPulseService.svc/post":
                # Live metrics cannot be turned off by a setting: nobody is watching.
                self._answer(HTTPStatus.OK, {}, {"x-ms-qps-subscribed": "false"})
            case _:
                self._answer(HTTPStatus.NOT_FOUND, {"error": "POST /v2.1/track"})

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = dict(parse_qsl(address.query))
        name = asked.pop("metric", None)
        if address.path != "/query" or name is None:
            usage = "GET /query?metric=NAME[&ATTRIBUTE=VALUE...]"
            self._answer(HTTPStatus.NOT_FOUND, {"error": usage})
            return
        points = self.server.sink.metrics(name, **asked)
        self._answer(
            HTTPStatus.OK,
            {
                "metric": name,
                "attributes": asked,
                "total": sum(point.value for point in points),
                "points": len(points),
            },
        )

    def _track(self, body: bytes) -> None:
        try:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            posted = json.loads(body)
            self.server.sink.accept(posted)
        except _MALFORMED as error:
            problem = {"index": 0, "statusCode": 400, "message": repr(error)}
            refused = {"itemsReceived": 1, "itemsAccepted": 0, "errors": [problem]}
            self._answer(HTTPStatus.BAD_REQUEST, refused)
            return
        taken = {"itemsReceived": len(posted), "itemsAccepted": len(posted), "errors": []}
        self._answer(HTTPStatus.OK, taken)

    def _answer(
        self, status: HTTPStatus, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  inherited
        """Say nothing: what arrives is asked for, not watched."""
