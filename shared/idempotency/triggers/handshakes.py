"""Who asks whether events are wanted here before sending any: CloudEvents senders, and Event Grid.

Neither is asked back: an address that a stranger gives (`WebHook-Request-Callback`, `validationUrl`) is
never called.
"""

import json
from collections.abc import Collection

import azure.functions as func
import msgspec

from ..errors import MalformedContent
from .problems import problem


class _Asked(msgspec.Struct, frozen=True):
    validation_code: str = msgspec.field(name="validationCode")


class _Validation(msgspec.Struct, frozen=True):
    data: _Asked


def permission(request: func.HttpRequest, origins: Collection[str]) -> func.HttpResponse:
    """The answer to OPTIONS: whether the origin that asks may send, at any rate it likes."""
    origin = (request.headers.get("WebHook-Request-Origin") or "").strip()
    if not origin:
        return problem(400, "malformed", "the header WebHook-Request-Origin is missing")
    if "*" not in origins and origin.lower() not in {known.lower() for known in origins}:
        return problem(403, "origin-unknown", "this origin may not send events here")
    headers = {
        "Allow": "OPTIONS, POST",
        "WebHook-Allowed-Origin": origin if origin.isascii() and origin.isprintable() else "*",
        "WebHook-Allowed-Rate": "*",
    }
    return func.HttpResponse(status_code=200, headers=headers)


def validation(request: func.HttpRequest) -> func.HttpResponse | None:
    """The answer to Event Grid's own questions about a subscription; None to anything else.

    Raises MalformedContent when there is no code to be sent back.
    """
    match request.headers.get("aeg-event-type"):
        case "SubscriptionValidation":
            code = _validation_code(request.get_body())
            body = json.dumps({"validationResponse": code})
            return func.HttpResponse(body, mimetype="application/json")
        case "SubscriptionDeletion":
            return func.HttpResponse(status_code=204)
    return None


def _validation_code(body: bytes) -> str:
    try:
        [asked] = msgspec.json.decode(body, type=list[_Validation])
    except (ValueError, RecursionError) as error:
        raise MalformedContent("there is no validationCode", reason="SchemaViolation") from error
    return asked.data.validation_code
