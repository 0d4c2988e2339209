"""Webhooks: a signed request -> delivery, outcome -> 2xx or not; see `pushed` for the answers.

The signature comes first: before it nothing is looked up, and 401 is all that a stranger learns. The
key is the sender's id for the event, the fingerprint the body's bytes, which a sender repeats as they
are. Keep the records for longer than the sender repeats: Standard Webhooks does so for 75 hours.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import azure.functions as func

from ..fingerprint import raw_bytes
from ..keys import checked
from ..protected import Protected
from ..records import Delivery
from .http_response import refusal
from .problems import problem
from .protecting import Handler
from .pushed import LARGEST_EVENT, acknowledgement, too_large
from .trace_context import trace_parent

type Decorator = Callable[
    [Callable[..., Any]], Callable[..., Coroutine[Any, Any, func.HttpResponse]]
]


class SignatureInvalid(Exception):
    """A request that its alleged sender did not sign, or signed too long ago."""


class Verifier(Protocol):
    """Tells signed requests from others; `standard_webhooks` has one."""

    def verify(self, body: bytes, headers: dict[str, str]) -> str:
        """The sender's id for the event; raises SignatureInvalid. Header names are in lower case."""
        ...


def idempotent(
    consumer: Protected, verifier: Verifier, *, largest_body: int = LARGEST_EVENT
) -> Decorator:
    """Protect a handler of signed webhooks; stands below the route decorator.

    The handler takes the request and returns whatever is to be recorded; the sender gets no body.
    ``largest_body`` is in bytes; a larger one is refused before its signature is computed.
    """

    def protect(
        function: Callable[..., Any],
    ) -> Callable[..., Coroutine[Any, Any, func.HttpResponse]]:
        handler = Handler(function, func.HttpRequest)
        codec = handler.codec()

        async def protected(*args: Any, **kwargs: Any) -> func.HttpResponse:
            request: func.HttpRequest = handler.message(args, kwargs)
            body = request.get_body()
            if len(body) > largest_body:
                return too_large(largest_body)
            headers = {name.lower(): value for name, value in request.headers.items()}
            try:
                event_id = verifier.verify(body, headers)
            except SignatureInvalid:
                return problem(401, "signature-invalid", "the request is not signed by its sender")
            try:
                delivery = Delivery(
                    key=checked(event_id, what="webhook id"),
                    fingerprint=raw_bytes(body),
                    trigger="webhook",
                    trace_parent=trace_parent(headers.get("traceparent")),
                )
                work = handler.work(args, kwargs)
                return acknowledgement(await consumer.handle(delivery, work, codec, wait=0))
            except Exception as error:  # noqa: BLE001 - a sender gets a problem, never a stack trace
                return refusal(error, consumer.name)

        return handler.expose(protected, returns=func.HttpResponse)

    return protect
