"""HTTP: the app's routes and the host's own admin endpoints, on 127.0.0.1.

Authorisation levels are not enforced, as with `func start`.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from .bindings import Function
from .invocations import Invocations
from .protos import TypedData, http_data
from .routes import Route, find

LARGEST_BODY = 100 * 1024 * 1024
SAME_SITE = {1: "Lax", 2: "Strict", 3: "None"}


class PortInUseError(Exception):
    """Another process listens on the port; the message says how to pick another."""


class HttpTrigger:
    """Serves HTTP functions, `/admin/host/status` and `/admin/functions`.

    `run_timer` runs a timer function out of turn and is told the function's name; it answers
    False when there is no such timer function.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        functions: Sequence[Function],
        invocations: Invocations,
        run_timer: Callable[[str], bool],
        grace: float,
    ) -> None:
        self._routes = list(routes)
        self._functions = {function.name: function for function in functions}
        self._invocations = invocations
        self._run_timer = run_timer
        self._began = time.monotonic()
        self.state = "Initializing"
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_get("/admin/host/status", self._status)
        app.router.add_get("/admin/functions", self._list)
        app.router.add_get("/admin/functions/{name}", self._describe)
        app.router.add_post("/admin/functions/{name}", self._run)
        app.router.add_route("*", r"/{path:[\s\S]*}", self._serve)
        # bodies are handed on as they come, as Azure's host does: what unpacks would refuse others
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=grace, auto_decompress=False
        )

    async def start(self, port: int) -> int:
        """Listen on the port, 0 for a free one; answers the port.

        Raises PortInUseError when it is taken.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise PortInUseError(
                f"Port {port} is unavailable ({error.strerror or error}). "
                "Stop the process that uses it, or pick another one with --port, 0 for a free one."
            ) from None
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and let running requests finish within the grace."""
        self.state = "Stopping"
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        found = find(self._routes, request.method, request.raw_path.partition("?")[0])
        if found is None:
            return web.Response(status=404)
        matched, params = found
        data = http_data(
            method=request.method,
            url=str(request.url),
            headers=_joined(request.headers.items(), lower=True),
            query=_joined(request.query.items(), lower=False),
            params=params,
            body=await request.read(),
        )
        result = await self._invocations.run(
            matched.function.name, data, {}, request.headers.get("traceparent")
        )
        if not result.succeeded:
            # What went wrong is in the log; a stack trace is nothing for a client.
            return web.Response(status=500)
        return response(result.return_value)

    async def _status(self, _request: web.Request) -> web.Response:
        uptime = round((time.monotonic() - self._began) * 1000)
        return web.json_response(
            {
                "id": "local",
                "state": self.state,
                "version": "4.0.0",
                "versionDetails": "local.host",
                "processUptime": uptime,
                "functionAppContentEditingState": "Unknown",
                "extensionBundle": None,
            }
        )

    async def _list(self, request: web.Request) -> web.Response:
        functions = [self._description(request, f) for f in self._functions.values()]
        return web.json_response(functions)

    async def _describe(self, request: web.Request) -> web.Response:
        function = self._functions.get(request.match_info["name"])
        if function is None:
            return web.Response(status=404)
        return web.json_response(self._description(request, function))

    def _description(self, request: web.Request, function: Function) -> dict[str, Any]:
        url = next((r.template for r in self._routes if r.function is function), None)
        return {
            "name": function.name,
            "language": "python",
            "isDisabled": False,
            "invoke_url_template": f"http://{request.host}/{url}" if url else None,
            "href": f"http://{request.host}/admin/functions/{function.name}",
            "config": {"bindings": [dict(binding) for binding in function.bindings]},
        }

    async def _run(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            json.loads(await request.text() or "{}")
        except ValueError:
            return web.Response(status=400, text='the body must be JSON, such as {"input": ""}')
        if name not in self._functions:
            return web.Response(status=404)
        if not self._run_timer(name):
            return web.Response(status=400, text="only timer functions can be run by hand here")
        return web.Response(status=202)


def _joined(pairs: Any, *, lower: bool) -> dict[str, str]:
    """Pairs as a mapping; repeated names are joined by commas, as Azure's host does."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower() if lower else name
        joined[key] = f"{joined[key]},{value}" if key in joined else value
    return joined


def response(value: TypedData | None) -> web.Response:
    """The HTTP response in what a function returned."""
    if value is None or value.WhichOneof("data") is None:
        return web.Response(status=204)
    if value.WhichOneof("data") != "http":
        return web.Response(body=body(value), content_type="text/plain", charset="utf-8")
    answer = web.Response(
        status=int(value.http.status_code), headers=value.http.headers, body=body(value.http.body)
    )
    for cookie in value.http.cookies or ():
        answer.set_cookie(
            cookie.name,
            cookie.value,
            domain=_field(cookie.domain) or None,
            path=_field(cookie.path) or "/",
            max_age=_field(cookie.max_age),
            secure=_field(cookie.secure),
            httponly=_field(cookie.http_only),
            samesite=SAME_SITE.get(cookie.same_site),
        )
    return answer


def body(value: TypedData | None) -> bytes:
    """The bytes of a returned body."""
    kind = value.WhichOneof("data") if value is not None else None
    content = getattr(value, kind) if kind else b""
    return content if isinstance(content, bytes) else str(content).encode()


def _field(nullable: Any) -> Any:
    return None if nullable is None else nullable.value
