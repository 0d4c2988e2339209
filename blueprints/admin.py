"""Administration over HTTP: the reads of the operator's commands, release and quarantine.

Off unless IDEMPOTENCY_ADMIN says so; every function asks for the host's administrative key. The
commands do more, and know who asks: prefer them where they can reach the services.
"""

import functools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import azure.functions as func
import msgspec
from msgspec import Meta

from bootstrap import App
from shared.idempotency import MalformedContent, Record, Status, StoreUnavailable
from shared.idempotency.dead_letters import Choice, Verdict
from shared.idempotency.descriptions import record_as_json
from shared.idempotency.interventions import (
    ChangedMeanwhile,
    Reason,
    Refused,
    apply,
    quarantined,
    released,
)
from shared.idempotency.resending import BrokerUnavailable, DeadLetters
from shared.idempotency.scanning import Found, Query, SeveralRecords, find_in, first_of
from shared.idempotency.surveying import survey
from shared.idempotency.triggers.problems import problem
from shared.orders import parsed

_MOST_PAGES = 20
_MOST_SHOWN = 500
_MOST_OF_ONE_KEY = 100

type Text = Annotated[str, Meta(min_length=1, max_length=1024)]
type Handler = Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: whose record, and for the audit who asks and why."""

    consumer: Text
    key: Text
    who: Text
    why: Text

    def reason(self) -> Reason:
        """For the record."""
        return Reason(who=self.who, at=time.time(), why=self.why)


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions, where they are wanted."""
    if not parts.settings.operations.admin:
        return

    def route(name: str, path: str, method: str, handler: Handler) -> None:
        @app.function_name(name)
        @app.route(
            route=f"idempotency/{path}",
            trigger_arg_name="request",
            methods=[method],
            auth_level=func.AuthLevel.ADMIN,
        )
        @functools.wraps(handler)
        async def function(request: func.HttpRequest) -> func.HttpResponse:
            return await _answered(handler, request)

    async def list_records(request: func.HttpRequest) -> func.HttpResponse:
        asked = request.params
        query = Query(
            consumer=asked.get("consumer"),
            statuses=_statuses(asked.get("status")),
            older_than=_number(asked.get("older_than")),
        )
        limit = int(min(_number(asked.get("limit")) or 50.0, _MOST_SHOWN))
        found, more = await first_of(parts.scans, query, limit=limit, most_pages=_MOST_PAGES)
        records = [record_as_json(each, whole=False) for each in found]
        return _json({"records": records, "more": more})

    async def show_record(request: func.HttpRequest) -> func.HttpResponse:
        asked = request.params
        hit = await find_in(parts.scans, asked.get("consumer", ""), asked.get("key", ""))
        if hit is None:
            return problem(404, "not-found", "there is no such record")
        return _json(record_as_json(hit[1], whole=True))

    async def count_records(request: func.HttpRequest) -> func.HttpResponse:
        query = Query(consumer=request.params.get("consumer"), page_size=1000)
        told = await survey(parts.scans, query, most_pages=_MOST_PAGES)
        return _json(msgspec.to_builtins(told))

    async def release_record(request: func.HttpRequest) -> func.HttpResponse:
        asked = parsed(request.get_body(), Intervention)
        letters = await _dead_letters(parts, asked)
        written = await _changed(parts, asked, released)
        if written is None and not letters:
            return problem(404, "not-found", "there is no such record, and no such dead letter")
        resent = await _resent(parts, asked, letters)
        record = None if written is None else record_as_json(written, whole=True)
        return _json({"record": record, "resent": len(resent)})

    async def quarantine_record(request: func.HttpRequest) -> func.HttpResponse:
        asked = parsed(request.get_body(), Intervention)
        written = await _changed(parts, asked, quarantined)
        if written is None:
            return problem(404, "not-found", "there is no such record")
        return _json({"record": record_as_json(written, whole=True)})

    route("idempotency_list", "records", "GET", list_records)
    route("idempotency_show", "record", "GET", show_record)
    route("idempotency_stats", "stats", "GET", count_records)
    route("idempotency_release", "release", "POST", release_record)
    route("idempotency_quarantine", "quarantine", "POST", quarantine_record)


async def _answered(handler: Handler, request: func.HttpRequest) -> func.HttpResponse:
    """The handler's answer, or the problem in its way."""
    try:
        return await handler(request)
    except MalformedContent as error:
        return problem(400, "malformed", str(error))
    except (Refused, ChangedMeanwhile, SeveralRecords) as error:
        return problem(409, "not-allowed", str(error))
    except StoreUnavailable as error:
        return problem(503, "store-unavailable", str(error), retry_after=error.retry_after or 5)
    except BrokerUnavailable as error:
        return problem(503, "try-again", str(error), retry_after=5)


async def _changed(
    parts: App, asked: Intervention, change: Callable[[Found, Reason], Record]
) -> Found | None:
    """The record as it was written; None when there is none."""
    hit = await find_in(parts.scans, asked.consumer, asked.key)
    if hit is None:
        return None
    scan, found = hit
    return await apply(scan, found, change(found, asked.reason()))


async def _dead_letters(parts: App, asked: Intervention) -> list[Verdict]:
    entity = parts.sources.get(asked.consumer)
    if entity is None:
        return []
    async with parts.service_bus() as client:
        found = await DeadLetters(client, entity).look(
            Choice(key=asked.key), limit=_MOST_OF_ONE_KEY
        )
    return [each for each in found if each.resend]


async def _resent(parts: App, asked: Intervention, letters: list[Verdict]) -> list[Verdict]:
    if not letters:
        return []
    async with parts.service_bus() as client:
        return await DeadLetters(client, parts.sources[asked.consumer]).resend(letters, "force")


def _statuses(text: str | None) -> frozenset[Status]:
    try:
        return frozenset(Status(each) for each in (text or "").split(",") if each)
    except ValueError:
        known = ", ".join(Status)
        raise MalformedContent(f"status: one or several of {known}, with commas between") from None


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise MalformedContent("older_than is in seconds, limit a count: numbers above 0")
    return number


def _json(content: Any) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(content, default=str), mimetype="application/json")
