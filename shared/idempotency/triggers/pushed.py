"""What is answered to who pushes events over HTTP: whether to send them again, and nothing else.

======================================  ==========================================================
outcome                                 answer
======================================  ==========================================================
processed, duplicate of success, stale  204
in flight; store down, or not now       409; 503: with Retry-After
mismatch                                422: this id came before, with other content
failed, duplicate of failure            422, the same for every repetition
quarantined, too old                    409
======================================  ==========================================================
"""

from typing import Any

import azure.functions as func

from ..records import Handled, Outcome
from .http_response import refused_for_good
from .problems import problem

LARGEST_EVENT = 256 * 1024
"""Bytes of a request's body."""


def acknowledgement(handled: Handled[Any]) -> func.HttpResponse:
    """The answer to an outcome."""
    match handled.outcome:
        case Outcome.FAILED:
            return refused_for_good(handled)
        case Outcome.DUPLICATE if handled.failed:
            return refused_for_good(handled)
        case Outcome.PROCESSED | Outcome.DUPLICATE | Outcome.STALE:
            return func.HttpResponse(status_code=204)
        case Outcome.IN_FLIGHT:
            detail = "this event is being processed"
            return problem(409, "in-flight", detail, retry_after=handled.retry_after)
        case Outcome.MISMATCH:
            return problem(
                422, "event-changed", "this id was used before for an event of other content"
            )
        case Outcome.QUARANTINED:
            return problem(409, "quarantined", handled.description)
        case Outcome.TOO_OLD:
            return problem(409, "too-old", handled.description)


def too_large(largest: int) -> func.HttpResponse:
    """The answer to a body that is not read."""
    return problem(413, "too-large", f"the body may have {largest} bytes at most")
