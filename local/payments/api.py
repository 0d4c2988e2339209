"""The provider's HTTP interface: requests to the books, answers and faults back to the caller."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

from .answer import Answer, problem
from .books import Books, Entry, Request
from .charge_request import ChargeRequest, InvalidRequest, idempotency_key
from .clock import Timetable
from .faults import Fault, Faults, Reply
from .ledger import Ledger
from .settlement import SettlementRequest, Settlements


class Api:
    """The routes. Lives on the server's loop, one instance for each time it is started.

    happened: called whenever something has changed that a test may wait for.
    """

    def __init__(
        self,
        books: Books[ChargeRequest],
        ledger: Ledger,
        settling: Books[SettlementRequest],
        settlements: Settlements,
        faults: Faults,
        timetable: Timetable,
        happened: Callable[[], None],
    ) -> None:
        self._books = books
        self._ledger = ledger
        self._settling = settling
        self._settlements = settlements
        self._faults = faults
        self._timetable = timetable
        self._happened = happened

    def application(self) -> web.Application:
        """All routes, with every refusal as problem+json."""
        application = web.Application(middlewares=[_refuse_plainly])
        application.add_routes(
            [
                web.post("/v1/charges", self._post_charge),
                web.get("/v1/charges", self._search),
                web.get("/v1/charges/{charge_id}", self._get_charge),
                web.post("/v1/settlements", self._post_settlement),
                web.get("/v1/settlements", self._search_settlements),
                web.get("/ledger", self._get_ledger),
            ]
        )
        return application

    async def _post_charge(self, http: web.Request) -> web.Response:
        self._refuse_in_outage()
        key = idempotency_key(http.headers.get("Idempotency-Key"))
        return await self._posted(http, self._books, ChargeRequest.of(await http.read()), key)

    async def _post_settlement(self, http: web.Request) -> web.Response:
        self._refuse_in_outage()
        key = idempotency_key(http.headers.get("Idempotency-Key"))
        request = SettlementRequest.of(await http.read())
        return await self._posted(http, self._settling, request, key)

    async def _posted[R: Request](
        self, http: web.Request, books: Books[R], request: R, key: str | None
    ) -> web.Response:
        fault = self._faults.meet(request.reference)
        if fault is None:
            answer = books.charge(request, key)
            self._happened()
            return _response(answer)
        return _response(await self._strike(fault, http, books, request, key))

    async def _strike[R: Request](
        self, fault: Fault, http: web.Request, books: Books[R], request: R, key: str | None
    ) -> Answer:
        """Let the request take the fault's course; CancelledError when that has no answer."""
        result: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if fault.reply is Reply.RESULT and fault.charge_after is not None:
            self._begin(fault.charge_after, books, request, key, result)
        elif fault.charge_after == 0:
            books.charge(request, key)
        elif fault.charge_after is not None:
            self._timetable.add(fault.charge_after, lambda: self._land(books, request, key))
        self._faults.count(fault.name)
        self._happened()
        if isinstance(fault.reply, Answer):
            return fault.reply
        if fault.reply is Reply.RESULT:
            return await result
        if fault.reply is Reply.DISCONNECT and http.transport is not None:
            http.transport.abort()
        return await _until_the_caller_leaves()

    def _begin[R: Request](
        self,
        seconds: float,
        books: Books[R],
        request: R,
        key: str | None,
        result: asyncio.Future[Answer],
    ) -> None:
        """Take the key now and charge later, whether or not the caller waits so long."""

        def finish() -> None:
            answer = books.carry_out(request, key)
            if not result.done():  # done: cancelled, because the caller has left
                result.set_result(answer)
            self._happened()

        taken = books.claim(request, key)
        if taken is not None:
            result.set_result(taken)
        else:
            self._timetable.add(seconds, finish)

    def _land[R: Request](self, books: Books[R], request: R, key: str | None) -> None:
        books.charge(request, key)
        self._happened()

    async def _search(self, http: web.Request) -> web.Response:
        return self._found(http, self._ledger)

    async def _search_settlements(self, http: web.Request) -> web.Response:
        return self._found(http, self._settlements)

    def _found(self, http: web.Request, ledger: Ledger | Settlements) -> web.Response:
        self._refuse_in_outage()
        match list(http.query.items()):
            case [("idempotency_key", key)]:
                return _first(ledger.of_key(key))
            case [("reference", reference)]:
                return _first(ledger.of_reference(reference))
            case _:
                raise InvalidRequest("ask for one idempotency_key or one reference")

    async def _get_charge(self, http: web.Request) -> web.Response:
        self._refuse_in_outage()
        return _first(self._ledger.of_id(http.match_info["charge_id"]))

    async def _get_ledger(self, http: web.Request) -> web.Response:
        charges = self._ledger.all()
        body = {
            "charged": len(charges),
            "charged_twice": list(self._ledger.charged_twice()),
            "charges": [charge.document() for charge in charges],
            "settlements": [each.document() for each in self._settlements.all()],
        }
        return _response(Answer(200, body))

    def _refuse_in_outage(self) -> None:
        refusal = self._faults.refusal()
        if refusal is not None:
            self._faults.count("outage")
            self._happened()
            raise _Refused(refusal)


class _Refused(Exception):
    """Ends a request with an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@web.middleware
async def _refuse_plainly(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except InvalidRequest as error:
        return _response(problem(400, "invalid_request", str(error)))
    except _Refused as refused:
        return _response(refused.answer)
    except web.HTTPException as error:
        return _response(problem(error.status, "refused", error.reason))


def _first(entries: Sequence[Entry]) -> web.Response:
    """The oldest entry found; 404 says no more than that none is known now."""
    if not entries:
        return _response(problem(404, "not_found", "nothing of this is known so far"))
    return _response(Answer(200, entries[0].document()))


def _response(answer: Answer) -> web.Response:
    return web.Response(
        status=answer.status,
        body=json.dumps(answer.body, indent=1).encode(),
        headers=answer.headers,
        content_type=answer.content_type,
    )


async def _until_the_caller_leaves() -> NoReturn:
    """Wait to be cancelled: the server does so when the connection ends, or the server."""
    while True:
        await asyncio.get_running_loop().create_future()
