"""CloudEvents over HTTP, in every mode, and Event Grid's own schema: request -> events -> one answer.

================================================  ==================================================
request                                           what it carries
================================================  ==================================================
`application/cloudevents+json`                    one event (structured mode)
`application/cloudevents-batch+json`              events (batch mode)
`ce-specversion` header, any other content type   one event, its data the body (binary mode)
`aeg-event-type: Notification`                    events in Event Grid's schema
`aeg-event-type: SubscriptionValidation`          Event Grid asks whether events are wanted here
OPTIONS                                           any other sender asks the same
anything else                                     415
================================================  ==================================================

One event is answered as `pushed` says. Of several each is handled by itself, and the answer tells what
became of each: 200 when all are done; 503 when sending them again would help, which the events
that are done do not mind; 422 when it would not.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, NamedTuple
from urllib.parse import unquote

import azure.functions as func

from ..errors import MalformedContent
from ..protected import Protected
from .batches import Batch
from .cloud_event import (
    CloudEvent,
    decoded_array,
    delivery_of,
    from_attributes,
    from_event_grid_schema,
    from_json,
)
from .handshakes import permission, validation
from .http_response import refusal
from .problems import problem
from .protecting import Handler
from .pushed import acknowledgement, too_large

__all__ = ["LARGEST_BATCH", "CloudEvent", "idempotent"]

LARGEST_BATCH = 1024 * 1024
"""Bytes of a request's body."""

type Decorator = Callable[
    [Callable[..., Any]], Callable[..., Coroutine[Any, Any, func.HttpResponse]]
]


class _Unsupported(Exception):
    """A request that is none of those above."""


class _Events(NamedTuple):
    """Events of a request, each still encoded, and how to read one."""

    encoded: list[Any]
    read: Callable[[Any], CloudEvent]
    several: bool


def idempotent(
    consumer: Protected,
    *,
    origins: Collection[str] = (),
    largest_body: int = LARGEST_BATCH,
    most_events: int = 1000,
) -> Decorator:
    """Protect a handler of CloudEvents behind an HTTP route; stands below the route decorator.

    The handler takes one CloudEvent, and nothing else. The route is for POST and OPTIONS, its
    ``trigger_arg_name`` is ``request``. ``origins`` are the senders that may send here if they ask, by
    domain name; "*" stands for any. ``largest_body`` is in bytes.
    """

    def protect(
        function: Callable[..., Any],
    ) -> Callable[..., Coroutine[Any, Any, func.HttpResponse]]:
        handler = Handler(function, CloudEvent)
        codec = handler.codec()

        async def handle(event: CloudEvent) -> func.HttpResponse:
            work = handler.work((event,), {})
            delivery = delivery_of(event, trigger="http")
            return acknowledgement(await consumer.handle(delivery, work, codec, wait=0))

        async def protected(request: func.HttpRequest) -> func.HttpResponse:
            if request.method == "OPTIONS":
                return permission(request, origins)
            if len(request.get_body()) > largest_body:
                return too_large(largest_body)
            try:
                if (answer := validation(request)) is not None:
                    return answer
                events = _events(request)
                if not events.several:
                    return await handle(events.read(events.encoded[0]))
                if len(events.encoded) > most_events:
                    detail = f"a batch may have {most_events} events at most"
                    return problem(413, "too-large", detail)
                return await Batch(consumer.name, events.read, handle).answered(events.encoded)
            except _Unsupported:
                return _unsupported()
            except Exception as error:  # noqa: BLE001 - a sender gets a problem, never a stack trace
                return refusal(error, consumer.name)

        return handler.expose_instead(
            protected, request=func.HttpRequest, returns=func.HttpResponse
        )

    return protect


def _events(request: func.HttpRequest) -> _Events:
    """What the request carries; raises _Unsupported, or MalformedContent for a batch that is none."""
    media_type, _, parameters = (request.headers.get("Content-Type") or "").partition(";")
    media_type = media_type.strip().lower()
    body = request.get_body()
    if media_type.startswith("application/cloudevents"):
        if not _is_utf8(parameters):
            raise _Unsupported
        match media_type:
            case "application/cloudevents+json":
                return _Events([body], from_json, several=False)
            case "application/cloudevents-batch+json":
                return _Events(decoded_array(body), _of_raw(from_json), several=True)
        raise _Unsupported
    if request.headers.get("ce-specversion"):
        return _Events([request], _from_binary, several=False)
    if request.headers.get("aeg-event-type") == "Notification":
        return _Events(decoded_array(body), _of_raw(from_event_grid_schema), several=True)
    raise _Unsupported


def _of_raw(read: Callable[[bytes], CloudEvent]) -> Callable[[Any], CloudEvent]:
    return lambda raw: read(bytes(raw))


def _from_binary(request: func.HttpRequest) -> CloudEvent:
    """The event in headers and body; header values are percent-encoded where they are not ASCII."""
    attributes: dict[str, Any] = {}
    for name, value in request.headers.items():
        if name.lower().startswith("ce-"):
            attributes[name.lower().removeprefix("ce-")] = _unquoted(name, value)
    attributes.pop("datacontenttype", None)  # it has a header of its own
    if content_type := request.headers.get("Content-Type"):
        attributes["datacontenttype"] = content_type
    return from_attributes(attributes, request.get_body())


def _unquoted(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedContent(f"header {name} is no UTF-8", reason="SchemaViolation") from error


def _is_utf8(parameters: str) -> bool:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset":
            return value.strip('"').lower() in ("utf-8", "utf8", "us-ascii")
    return True


def _unsupported() -> func.HttpResponse:
    detail = (
        "send application/cloudevents+json, application/cloudevents-batch+json, binary mode with "
        "ce-specversion, or an Event Grid notification; in UTF-8"
    )
    return problem(415, "format-unsupported", detail)
