"""Refusals over HTTP as `application/problem+json` (RFC 9457); never a stack trace, never a payload."""

import json
import math
from typing import Any

import azure.functions as func

_TYPES = "/api/problems#"
"""Where the app explains its refusals: see TYPES."""

TYPES = {
    "key-missing": "The route requires an Idempotency-Key header, and the request has none.",
    "key-invalid": "The Idempotency-Key is not 1 to 255 characters of printable ASCII, or there are several.",
    "key-reused": "The key was used before with another method, path, query or body. Use a new key.",
    "event-changed": "An event of this id came before with other content. Send it under a new id.",
    "signature-invalid": "The webhook's signature is missing, wrong, or more than five minutes old.",
    "format-unsupported": "The content type is none of those the route takes.",
    "origin-unknown": "The sender that asks is none of those that may send events here.",
    "events-failed": "Some events of the batch were not processed; the member `events` tells which.",
    "in-flight": "The original request is still running. Wait as Retry-After says, then send again.",
    "response-not-kept": "The request was processed, but its response was too large to be replayed.",
    "refused": "The request was refused for good, and so is every repetition; the detail says why.",
    "quarantined": "The effect of an earlier attempt is unknown; a person has to look at it.",
    "too-old": "The request was sent longer ago than duplicates are surely recognised.",
    "store-unavailable": "The record store is down; nothing ran. Send again with the same key.",
    "try-again": "The request cannot be processed now. Send again with the same key.",
    "failed": "The request failed and was not recorded. Send again with the same key.",
    "malformed": "The request's content is not what the route takes; the detail names the field.",
    "too-large": "The request's body is larger than the route takes.",
    "not-found": "There is nothing at this address.",
    "not-allowed": "The record does not allow it as it is, or was changed meanwhile. Look again.",
}
"""What each problem type means; the last part of its `type` is the name."""

_TITLES = {
    "key-missing": "The request has no Idempotency-Key",
    "key-invalid": "The Idempotency-Key cannot be used",
    "key-reused": "The Idempotency-Key was used before for another request",
    "event-changed": "The event's id was used before for another event",
    "signature-invalid": "The request is not signed by its sender",
    "format-unsupported": "The content type is not supported",
    "origin-unknown": "The sender may not send events here",
    "events-failed": "Not all events were processed",
    "in-flight": "The original request is still being processed",
    "response-not-kept": "The request was processed",
    "refused": "The request was refused for good",
    "quarantined": "The effect of an earlier attempt is unknown",
    "too-old": "The request is too old",
    "store-unavailable": "The service cannot process the request now",
    "try-again": "The service cannot process the request now",
    "failed": "The request failed",
    "malformed": "The request cannot be processed as it was sent",
    "too-large": "The request is too large",
    "not-found": "There is no such thing",
    "not-allowed": "The record does not allow it",
}


def problem(
    status: int,
    name: str,
    detail: str,
    *,
    title: str | None = None,
    retry_after: float | None = None,
    **members: Any,
) -> func.HttpResponse:
    """A refusal: ``name`` is the stable last part of its type, ``retry_after`` in seconds.

    ``members`` are further members of the body, of the problem's own.
    """
    body = {
        "type": _TYPES + name,
        "title": title or _TITLES.get(name, "The request failed"),
        "status": status,
        "detail": detail,
        **members,
    }
    headers = {"Cache-Control": "no-store"}
    if retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return func.HttpResponse(
        json.dumps(body),
        status_code=status,
        headers=headers,
        mimetype="application/problem+json",
    )
