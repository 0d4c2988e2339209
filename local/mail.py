"""A mail provider on this machine, which sends nothing: it keeps what it was given, to be looked at."""

import json
from types import TracebackType
from typing import NamedTuple, Self

from aiohttp import web

from local.payments.server import Server


class Mail(NamedTuple):
    """A mail that was taken."""

    to: str
    subject: str
    text: str


class MailCatcher:
    """Up while the context lasts. Mails with an Idempotency-Key it has seen are taken once.

    ``drop_answers``: so many mails are taken, and their answers lost. ``refuse_with``: the next requests
    get these status codes, and nothing of them is taken.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self.mails: list[Mail] = []
        self.drop_answers = 0
        self.refuse_with: list[int] = []
        self._taken: dict[str, str] = {}
        self._server = Server()

    def __enter__(self) -> Self:
        self.port = self._server.start(self._application, self.host, self.port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    def _application(self) -> web.Application:
        application = web.Application()
        application.add_routes([web.post("/v1/mails", self._post), web.get("/mails", self._get)])
        return application

    async def _post(self, request: web.Request) -> web.Response:
        content = await request.json()
        if self.refuse_with:
            status = self.refuse_with.pop(0)
            return web.json_response({}, status=status, headers={"Retry-After": "7"})
        key = request.headers.get("Idempotency-Key")
        if key is None or key not in self._taken:
            self.mails.append(Mail(content["to"], content["subject"], content["text"]))
        mail_id = self._taken.setdefault(key or "", f"mail_{len(self.mails)}")
        if self.drop_answers > 0:
            self.drop_answers -= 1
            if request.transport is not None:
                request.transport.abort()
        return web.json_response({"mail_id": mail_id}, status=201)

    async def _get(self, request: web.Request) -> web.Response:
        body = json.dumps([mail._asdict() for mail in self.mails], indent=1)
        return web.Response(text=body + "\n", content_type="application/json")
