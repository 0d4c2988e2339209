"""HTTP requests with an Idempotency-Key: request -> delivery, outcome -> response.

==================================  ==============================================================
case                                answer
==================================  ==============================================================
key missing where it is required,   400 problem+json
or malformed
key missing where it is optional    what the handler answers: unprotected, it runs each time
body larger than the route takes    413
same key, other request             422
original still running              409 + Retry-After, at once: HTTP does not wait
finished                            the recorded status, headers that matter and body,
                                    plus `Idempotent-Replayed: true`
refused for good (PermanentFailure) 422, and the same again for every duplicate
quarantined                         409
store down, or not now              503 + Retry-After
any other exception                 500, the key is free for a retry
==================================  ==============================================================

Kept and replayed are 2xx, 3xx and the 4xx a handler gives after it ran. Never kept are 401, 403 and
429, nor this adapter's own refusals: they free the key, as a 5xx does. A handler that refuses before
any effect raises MalformedContent: 400, and the key stays free for the corrected request. The first
caller gets the handler's response as it is.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import azure.functions as func

from ..errors import ConfigurationError
from ..protected import Protected
from ..results import ResultCodec
from .callers import Caller, caller_of, function_key_caller
from .http_request import has_idempotency_key, idempotency_key_of, to_delivery
from .http_response import (
    RecordedResponse,
    ResponseNotKept,
    answer,
    checked,
    recorded,
    refusal,
)
from .problems import problem
from .protecting import Handler

__all__ = [
    "LARGEST_BODY",
    "caller_of",
    "function_key_caller",
    "idempotency_key_of",
    "idempotent",
]

LARGEST_BODY = 1024 * 1024
"""Bytes of a request's body; a larger one would be digested on the loop that serves all others."""


class Decorator(Protocol):
    """Makes a handler, asynchronous or not, an asynchronous one of the same parameters."""

    def __call__[**P](
        self, function: Callable[P, func.HttpResponse | Awaitable[func.HttpResponse]], /
    ) -> Callable[P, Coroutine[Any, Any, func.HttpResponse]]: ...


def idempotent(
    consumer: Protected,
    *,
    required: bool = True,
    caller: Caller = caller_of,
    largest_body: int = LARGEST_BODY,
) -> Decorator:
    """Protect an HTTP handler; stands below the route decorator.

    The key is scoped by caller, method and path; the fingerprint covers method, path, query and the
    body, as its content type says. ``largest_body`` is in bytes. The handler returns a
    func.HttpResponse.

    ``required`` False: a request *without* the header runs unprotected, each time, with no record and
    no current_attempt(). Only for a handler that bears it; one whose header is empty or malformed is
    refused all the same.
    """

    def protect[**P](
        function: Callable[P, func.HttpResponse | Awaitable[func.HttpResponse]],
    ) -> Callable[P, Coroutine[Any, Any, func.HttpResponse]]:
        handler = Handler(function, func.HttpRequest)
        if not _is_response(handler.hints.get("return", func.HttpResponse)):
            raise ConfigurationError(f"{handler.name} must return a func.HttpResponse")
        codec: ResultCodec[RecordedResponse] = ResultCodec(RecordedResponse)

        async def protected(*args: P.args, **kwargs: P.kwargs) -> func.HttpResponse:
            request: func.HttpRequest = handler.message(args, kwargs)
            work = handler.work(args, kwargs)
            own: func.HttpResponse | None = None

            async def respond() -> RecordedResponse:
                nonlocal own
                own = await work()
                return recorded(own, handler.name)

            try:
                if len(request.get_body()) > largest_body:
                    detail = f"the body may have {largest_body} bytes at most"
                    return problem(413, "too-large", detail)
                if not required and not has_idempotency_key(request):
                    return checked(await work(), handler.name)
                delivery = to_delivery(request, caller)
                handled = await consumer.handle(delivery, respond, codec, wait=0)
            except ResponseNotKept as not_kept:
                return not_kept.response
            except Exception as error:  # noqa: BLE001 - a caller gets a problem, never a stack trace
                return refusal(error, consumer.name)
            return answer(handled, own)

        return handler.expose(protected, returns=func.HttpResponse)

    return protect


def _is_response(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, func.HttpResponse)
