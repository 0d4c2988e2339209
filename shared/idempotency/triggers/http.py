"""HTTP requests with an Idempotency-Key: request -> delivery, outcome -> response.

==================================  ==============================================================
case                                answer
==================================  ==============================================================
key missing or malformed            400 problem+json
same key, other request             422
original still running              409 + Retry-After, at once: HTTP does not wait
finished                            the recorded status, headers that matter and body,
                                    plus `Idempotent-Replayed: true`
store down                          503 + Retry-After; nothing runs
==================================  ==============================================================

Kept and replayed are 2xx, 3xx and the 4xx a handler gives after it ran. 401, 403, 429 and the
400/409/422 of this adapter are never kept; a 5xx frees the key for a retry.
"""

import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import azure.functions as func
import msgspec

from ..consumer import Protected
from ..errors import (
    DeliveryRejected,
    InvalidKey,
    MalformedContent,
    MissingKey,
    StoreUnavailable,
    TransientFailure,
)
from ..fingerprint import canonical_json
from ..keys import joined
from ..records import Delivery, Handled, Outcome
from ..results import ResultCodec
from ..running import as_work
from .problems import problem
from .protecting import Handler

_log = logging.getLogger("idempotency.http")
_NEVER_KEPT = frozenset({400, 401, 403, 409, 422, 429})
_KEPT_HEADERS = ("Location", "ETag")
_LONGEST_KEY = 255


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a response, and replayed: never a cookie, never an authentication header."""

    status: int
    mimetype: str
    body: bytes
    headers: dict[str, str]


class _NotKept(Exception):
    """No error: a response that frees the key."""

    def __init__(self, response: func.HttpResponse) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


type Caller = Callable[[func.HttpRequest], str]
type Decorator = Callable[[Callable[..., Any]], Callable[..., Awaitable[func.HttpResponse]]]


def caller_of(request: func.HttpRequest) -> str:
    """Who sends the request: the principal App Service authenticated, or the function key used.

    The principal's header is only to be trusted where App Service authentication is on, which then
    sets it itself. The function key enters as its hash. The client's address never counts.
    """
    principal = request.headers.get("x-ms-client-principal-id")
    if principal:
        return f"principal:{principal}"
    function_key = request.headers.get("x-functions-key") or request.params.get("code")
    if function_key:
        return "function-key:" + hashlib.sha256(function_key.encode()).hexdigest()[:32]
    return "anonymous"


def idempotency_key_of(request: func.HttpRequest) -> str:
    """The Idempotency-Key of a request, quoted (as the draft wants it) or bare (as clients send it).

    Raises MissingKey or InvalidKey: 1 to 255 characters of printable ASCII.
    """
    value = (request.headers.get("Idempotency-Key") or "").strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not value:
        raise MissingKey(
            "the request needs an Idempotency-Key header: 1 to 255 printable characters"
        )
    if len(value) > _LONGEST_KEY or not all(" " <= character <= "~" for character in value):
        raise InvalidKey("the Idempotency-Key must be 1 to 255 characters of printable ASCII")
    return value


def idempotent(consumer: Protected, *, caller: Caller = caller_of) -> Decorator:
    """Protect an HTTP handler; stands below the route decorator. The header is required.

    The key is scoped by caller, method and path; the fingerprint covers method, path, query and the
    body, as canonical JSON where it is JSON.
    """

    def protect(function: Callable[..., Any]) -> Callable[..., Awaitable[func.HttpResponse]]:
        handler = Handler(function)
        codec: ResultCodec[RecordedResponse] = ResultCodec(RecordedResponse)

        @functools.wraps(function)
        async def protected(*args: Any, **kwargs: Any) -> func.HttpResponse:
            request: func.HttpRequest = handler.message(args, kwargs)
            work = as_work(function, *args, **kwargs)

            async def respond() -> RecordedResponse:
                return _recorded(await work())

            try:
                handled = await consumer.handle(
                    to_delivery(request, caller), respond, codec, wait=0
                )
            except _NotKept as not_kept:
                return not_kept.response
            except DeliveryRejected as error:
                return problem(400, _name(error), str(error))
            except StoreUnavailable as error:
                _log.warning("%s: %s", consumer.name, error)
                detail = "the request was not processed; send it again with the same key"
                return problem(503, "store-unavailable", detail, retry_after=error.retry_after or 5)
            except TransientFailure as error:
                _log.warning("%s: %s", consumer.name, error)
                detail = "the request cannot be processed now; send it again with the same key"
                return problem(503, "try-again", detail, retry_after=error.retry_after or 5)
            except Exception:  # noqa: BLE001 - a caller gets a problem, never a stack trace
                _log.exception("%s: the handler failed", consumer.name)
                return problem(500, "failed", "send the request again with the same key")
            return _response(handled)

        return protected

    return protect


def to_delivery(request: func.HttpRequest, caller: Caller = caller_of) -> Delivery:
    """What the consumer needs to know of a request; raises MissingKey or InvalidKey."""
    url = urlsplit(request.url)
    key = joined(caller(request), request.method, url.path, idempotency_key_of(request))
    return Delivery(
        key=key,
        fingerprint=_fingerprint(request, url.path),
        trigger="http",
        trace_parent=request.headers.get("traceparent"),
    )


def _fingerprint(request: func.HttpRequest, path: str) -> str:
    body = request.get_body()
    try:
        content = canonical_json(body)
    except MalformedContent:
        content = "raw1:" + hashlib.sha256(body).hexdigest()
    query = sorted((name, value) for name, value in request.params.items() if name != "code")
    line = msgspec.json.encode([request.method, path, query, content])
    return "http1:" + hashlib.sha256(line).hexdigest()


def _recorded(response: func.HttpResponse) -> RecordedResponse:
    status = response.status_code
    if status >= 500 or status in _NEVER_KEPT:
        raise _NotKept(response)
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    return RecordedResponse(
        status=status, mimetype=response.mimetype, body=response.get_body(), headers=headers
    )


def _response(handled: Handled[RecordedResponse]) -> func.HttpResponse:
    match handled.outcome:
        case Outcome.PROCESSED | Outcome.DUPLICATE if handled.result is not None:
            recorded = handled.result
            headers = dict(recorded.headers)
            if handled.outcome is Outcome.DUPLICATE:
                headers["Idempotent-Replayed"] = "true"
            return func.HttpResponse(
                recorded.body,
                status_code=recorded.status,
                headers=headers,
                mimetype=recorded.mimetype,
            )
        case Outcome.IN_FLIGHT:
            detail = "a request with this Idempotency-Key is being processed"
            return problem(409, "in-flight", detail, retry_after=handled.retry_after)
        case Outcome.MISMATCH:
            detail = "this Idempotency-Key was used before with another method, path, query or body"
            return problem(422, "key-reused", detail)
        case Outcome.PROCESSED | Outcome.DUPLICATE if not handled.failed:
            detail = "the request was processed; its response was too large to be kept"
            return problem(409, "response-not-kept", detail, title="The request was processed")
        case _:
            detail = f"{handled.reason}: {handled.description}"
            return problem(409, handled.outcome, detail, title="The request was refused for good")


def _name(error: DeliveryRejected) -> str:
    return {"MissingKey": "key-missing", "InvalidKey": "key-invalid"}.get(error.reason, "malformed")
