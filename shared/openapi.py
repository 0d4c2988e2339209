"""The HTTP interface, described: OpenAPI 3.1, with schemas made from what the code parses bodies by."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from .idempotency.triggers.problems import TYPES
from .inventory import StockLevel
from .order_status import ORDER_STATUS_CHANGED, OrderStatus
from .orders import SubmittedOrder
from .webhooks import Charge, PaymentEvent

_SCHEMAS: Final = "#/components/schemas/{name}"
_PROBLEM_CODES: Final = {
    400: "malformed, or a key or header that is missing or invalid",
    401: "not signed by its sender",
    403: "the sender that asks may not send here",
    404: "there is no such thing, or not yet",
    409: "the original is still running, or a person has to look at it",
    413: "the body is too large",
    415: "the content type is not supported",
    422: "the key or id was used for other content, or refused for good",
    500: "failed; nothing was recorded",
    503: "not now: send it again",
}
_RETRY_AFTER: Final = {
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "required": False}
}
_AMOUNT: Final = {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]{1,12}(\\.[0-9]{1,4})?$"},
        {"type": "number", "minimum": 0, "maximum": 10**12},
    ],
    "description": "Of at most 4 decimals. Text keeps its digits.",
}
_BYTES: Final[dict[str, Any]] = {}
"""A body of any bytes."""


def document(*, service_bus: bool, webhooks: bool) -> dict[str, Any]:
    """The description of the routes that are there with these connections."""
    paths = _always()
    if service_bus:
        paths |= _with_service_bus()
    if webhooks:
        paths |= _webhooks()
    _, components = msgspec.json.schema_components(
        [SubmittedOrder, StockLevel, OrderStatus, PaymentEvent, Charge], ref_template=_SCHEMAS
    )
    for name, amount in (("Line", "unit_price"), ("Charge", "amount")):
        components[name]["properties"][amount] = _AMOUNT
    # of any other type of event the data is whatever the provider likes
    components["PaymentEvent"]["properties"]["data"] = {"anyOf": [_ref("Charge"), {}]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Orders",
            "version": "1",
            "description": "Requests that change something may be repeated: see /api/problems.",
        },
        "servers": [{"url": "/api"}],
        "security": [{"function_key": []}, {"function_key_in_query": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _problem()},
            "securitySchemes": {
                "function_key": {"type": "apiKey", "in": "header", "name": "x-functions-key"},
                "function_key_in_query": {"type": "apiKey", "in": "query", "name": "code"},
            },
        },
    }


def _always() -> dict[str, Any]:
    accepted = {
        "type": "object",
        "required": ["order_id", "status"],
        "properties": {"order_id": {"type": "string"}, "status": {"const": "accepted"}},
    }
    anything = {"type": "object"}
    return {
        "/orders": {
            "post": _operation(
                "submit_order",
                "Submit an order; the same key gives the same answer and one order",
                parameters=[_idempotency_key()],
                bodies={"application/json": _ref("SubmittedOrder")},
                answers={202: _answer("accepted", accepted, headers=_submitted())},
                problems=(400, 409, 413, 422, 500, 503),
            )
        },
        "/orders/{order_id}": {
            "get": _operation(
                "get_order",
                "An order by its id",
                parameters=[_in_path("order_id")],
                answers={200: _answer("the order", anything)},
                problems=(404, 503),
            )
        },
        "/events/order-status": {"post": _order_status(), "options": _permission()},
        "/orders/{order_id}/timeline": {
            "get": _operation(
                "get_order_timeline",
                "What has happened to an order",
                parameters=[_in_path("order_id")],
                answers={200: _answer("the timeline", {"type": "object"})},
                problems=(404, 503),
            )
        },
        "/health": _open("health", "What runs", "application/json", anything),
        "/health/store": {
            "get": _operation(
                "store_health",
                "Whether the store answers",
                parameters=[],
                answers={200: _answer("it does", anything)},
                problems=(503,),
            )
        },
        "/problems": _open("problems", "Why a request is refused", "text/markdown", _BYTES),
        "/openapi.json": _open("openapi", "This document", "application/json", anything),
    }


def _with_service_bus() -> dict[str, Any]:
    return {
        "/stock/{warehouse}/{sku}": {
            "get": _operation(
                "get_stock_level",
                "How much of an article a warehouse has",
                parameters=[_in_path("warehouse"), _in_path("sku")],
                answers={200: _answer("the level", _ref("StockLevel"))},
                problems=(404, 503),
            )
        },
    }


def _webhooks() -> dict[str, Any]:
    headers = ("webhook-id", "webhook-timestamp", "webhook-signature")
    operation = _operation(
        "payment_webhook",
        "What became of a charge, by Standard Webhooks",
        parameters=[_in_header(name, required=True) for name in headers],
        bodies={"application/json": _ref("PaymentEvent")},
        answers={204: {"description": "received, or received before"}},
        problems=(400, 401, 409, 413, 422, 500, 503),
    )
    return {"/webhooks/payments": {"post": {**operation, "security": []}}}


def _order_status() -> dict[str, Any]:
    event = {
        "type": "object",
        "required": ["specversion", "id", "source", "type", "subject", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1, "maxLength": 200},
            "source": {"type": "string", "minLength": 1, "maxLength": 200},
            "type": {"const": ORDER_STATUS_CHANGED},
            "subject": {"type": "string", "minLength": 1, "maxLength": 128},
            "data": _ref("OrderStatus"),
        },
    }
    events = {"type": "array", "items": event}
    told = {
        "type": "object",
        "required": ["events"],
        "properties": {"events": {"type": "array", "items": {"type": "object"}}},
    }
    return _operation(
        "order_status_changed",
        "How orders get on, in CloudEvents of any mode or in Event Grid's schema",
        bodies={
            "application/cloudevents+json": event,
            "application/cloudevents-batch+json": events,
            "application/json": _BYTES,
        },
        answers={
            200: _answer("all events are done; or Event Grid's validation is answered", told),
            204: {"description": "the event is done, or was before"},
        },
        problems=(400, 409, 413, 415, 422, 500, 503),
    )


def _permission() -> dict[str, Any]:
    allowed = {
        name: {"schema": {"type": "string"}}
        for name in ("WebHook-Allowed-Origin", "WebHook-Allowed-Rate")
    }
    return _operation(
        "may_send_order_status",
        "Whether a sender of CloudEvents may send here",
        parameters=[_in_header("WebHook-Request-Origin", required=True)],
        answers={200: {"description": "it may", "headers": allowed}},
        problems=(400, 403),
    )


def _open(name: str, summary: str, content_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A route that anybody may read."""
    answer = _answer("as it says", schema, content_type=content_type)
    return {"get": {**_operation(name, summary, answers={200: answer}), "security": []}}


def _operation(
    name: str,
    summary: str,
    *,
    answers: dict[int, dict[str, Any]],
    parameters: Iterable[dict[str, Any]] = (),
    bodies: dict[str, dict[str, Any]] | None = None,
    problems: Iterable[int] = (),
) -> dict[str, Any]:
    refusals = {code: _refusal(code) for code in problems}
    described: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            str(code): answer for code, answer in sorted({**answers, **refusals}.items())
        },
    }
    if bodies:
        content = {content_type: {"schema": schema} for content_type, schema in bodies.items()}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _answer(
    description: str,
    schema: dict[str, Any],
    *,
    content_type: str = "application/json",
    headers: dict[str, Any] | None = None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": description,
        "content": {content_type: {"schema": schema}},
    }
    return answer if headers is None else {**answer, "headers": headers}


def _refusal(code: int) -> dict[str, Any]:
    answer = _answer(_PROBLEM_CODES[code], _ref("Problem"), content_type="application/problem+json")
    return {**answer, "headers": _RETRY_AFTER} if code in (409, 503) else answer


def _problem() -> dict[str, Any]:
    types = [f"/api/problems#{name}" for name in TYPES]
    return {
        "type": "object",
        "description": "RFC 9457; `type` is explained at /api/problems.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"enum": types},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "events": {"type": "array", "items": {"type": "object"}},
        },
    }


def _idempotency_key() -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-+\\--~]+$"}
    description = (
        "Bare, or a quoted string of RFC 8941: the same key. One with a comma only in quotes."
    )
    return {
        **_in_header("Idempotency-Key", required=True),
        "schema": schema,
        "description": description,
    }


def _submitted() -> dict[str, Any]:
    return {
        "Location": {"schema": {"type": "string"}, "required": True},
        "Idempotent-Replayed": {"schema": {"const": "true"}, "required": False},
    }


def _in_header(name: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "schema": {"type": "string"}}


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 128}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _SCHEMAS.format(name=name)}
