"""HTTP responses: what is kept of them, and what each outcome and each error is answered."""

import logging
from typing import Any

import azure.functions as func
import msgspec

from ..errors import (
    DeliveryRejected,
    InvalidKey,
    MissingKey,
    StoreUnavailable,
    TransientFailure,
)
from ..records import Handled, Outcome
from .problems import problem

_log = logging.getLogger("idempotency.http")
_NEVER_KEPT = frozenset({401, 403, 429})
_KEPT_HEADERS = (
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Location",
    "Content-Type",
    "ETag",
    "Last-Modified",
    "Link",
    "Location",
)
"""A list of what is replayed, so that no cookie and no authentication header ever is."""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a response, and replayed."""

    status: int
    mimetype: str
    charset: str
    body: bytes
    headers: list[tuple[str, str]]

    @classmethod
    def of(cls, response: func.HttpResponse) -> "RecordedResponse":
        return cls(
            status=response.status_code,
            mimetype=response.mimetype,
            charset=response.charset,
            body=response.get_body(),
            headers=[(n, v) for n in _KEPT_HEADERS for v in response.headers.getlist(n)],
        )

    def replayed(self) -> func.HttpResponse:
        """The response again, marked as such."""
        response = func.HttpResponse(
            self.body, status_code=self.status, mimetype=self.mimetype, charset=self.charset
        )
        for name, value in self.headers:
            response.headers.add(name, value)
        return _marked_as_replayed(response)


class ResponseNotKept(Exception):
    """Takes a response past the consumer, which releases the record as for any exception."""

    def __init__(self, response: func.HttpResponse) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


def checked(response: Any, handler: str) -> func.HttpResponse:
    """What a handler returned; TypeError when that is no response."""
    if not isinstance(response, func.HttpResponse):
        raise TypeError(f"{handler} returned {type(response).__name__}, no func.HttpResponse")
    return response


def recorded(returned: Any, handler: str) -> RecordedResponse:
    """What is kept of a handler's response; raises ResponseNotKept when nothing may be."""
    response = checked(returned, handler)
    if response.status_code >= 500 or response.status_code in _NEVER_KEPT:
        raise ResponseNotKept(response)
    return RecordedResponse.of(response)


def answer(handled: Handled[RecordedResponse], own: func.HttpResponse | None) -> func.HttpResponse:
    """The response to an outcome; ``own`` is what the handler gave in this very call, if it ran."""
    match handled.outcome:
        case Outcome.PROCESSED | Outcome.STALE if own is not None:
            return own
        case _ if handled.result is not None:
            return handled.result.replayed()
        case Outcome.FAILED:
            return refused_for_good(handled)
        case Outcome.DUPLICATE if handled.failed:
            return _marked_as_replayed(refused_for_good(handled))
        case Outcome.PROCESSED | Outcome.DUPLICATE | Outcome.STALE:
            detail = "the request was processed; its response was too large to be kept"
            return problem(409, "response-not-kept", detail)
        case Outcome.IN_FLIGHT:
            detail = "a request with this Idempotency-Key is being processed"
            return problem(409, "in-flight", detail, retry_after=handled.retry_after)
        case Outcome.MISMATCH:
            detail = "this Idempotency-Key was used before with another method, path, query or body"
            return problem(422, "key-reused", detail)
        case Outcome.QUARANTINED:
            return problem(409, "quarantined", handled.description)
        case Outcome.TOO_OLD:
            return problem(409, "too-old", handled.description)


def refused_for_good(handled: Handled[Any]) -> func.HttpResponse:
    """The answer to a PermanentFailure, and to each duplicate of it."""
    detail = ": ".join(part for part in (handled.reason, handled.description) if part)
    return problem(422, "refused", detail)


def _marked_as_replayed(response: func.HttpResponse) -> func.HttpResponse:
    response.headers["Idempotent-Replayed"] = "true"
    return response


def refusal(error: Exception, consumer: str) -> func.HttpResponse:
    """The response to an exception; what it says to the caller is never the exception's own text,
    except where a delivery was rejected and the sender has to mend it."""
    match error:
        case MissingKey():
            return problem(400, "key-missing", str(error))
        case InvalidKey():
            return problem(400, "key-invalid", str(error))
        case DeliveryRejected():
            return problem(400, "malformed", str(error))
        case StoreUnavailable():
            _log.warning("%s: %s", consumer, error)
            detail = "the request was not processed; send it again with the same key"
            return problem(503, "store-unavailable", detail, retry_after=error.retry_after or 5)
        case TransientFailure():
            _log.warning("%s: %s", consumer, error)
            detail = "the request cannot be processed now; send it again with the same key"
            return problem(503, "try-again", detail, retry_after=error.retry_after or 5)
        case _:
            _log.error("%s: the request failed", consumer, exc_info=error)
            return problem(500, "failed", "send the request again with the same key")
