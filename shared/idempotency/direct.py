"""Protects any function, whatever calls it: a trigger without an adapter, a script, a loop over rows.

    @idempotent(loyalty, key=lambda order, points: order.order_id)
    async def credit(order: Order, points: int) -> Balance: ...

    balance = await credit(order, 10)  # the first time and every other time

The decorated function is asynchronous and keeps its parameters and its result. Whoever needs to know
*what became of it* rather than its result asks ``consumer.handle(Delivery(...), work, codec)``, which
also takes what a broker tells: delivery count, sequence number, original time, trace context.

==================================  ================================================================
outcome                             the caller
==================================  ================================================================
processed, duplicate, stale         gets the result; the recorded one of a duplicate
in flight                           TransientFailure with ``retry_after``
failed, duplicate of failure        PermanentFailure with the recorded reason, each time
mismatch, quarantined, too old      DeliveryRejected with the outcome's reason
done, but its result is not kept    ResultUnavailable, the first caller too
==================================  ================================================================

An adapter of one's own settles by these: TransientFailure and StoreUnavailable let the message come
back, paced; PermanentFailure and DeliveryRejected set it aside with their ``reason``; everything else
that returns is acknowledged.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, overload

from .errors import (
    ConfigurationError,
    DeliveryRejected,
    PermanentFailure,
    ResultUnavailable,
    TransientFailure,
)
from .fingerprint import canonical, canonical_json, raw_bytes
from .handlers import name_of, refuse_registered, result_codec
from .keys import checked
from .protected import Protected
from .records import Delivery, Handled, Outcome
from .running import as_work

type Content = Callable[..., object]
"""Takes the function's arguments; gives what must be equal in true duplicates."""


class Decorator(Protocol):
    """Makes a function, asynchronous or not, an asynchronous one of the same parameters and result."""

    @overload
    def __call__[**P, R](
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__[**P, R](
        self, function: Callable[P, R], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]: ...


def all_arguments(*args: Any, **kwargs: Any) -> object:
    """The content of a call that names none: each argument by its name, however it was passed."""
    raise NotImplementedError(
        "stands for the arguments, which only the decorated function can name"
    )


def idempotent(
    consumer: Protected,
    *,
    key: Callable[..., str | None],
    content: Content | None = all_arguments,
    wait: float | None = None,
) -> Decorator:
    """Have the function's effect once per key.

    ``key`` and ``content`` are called with the function's own arguments. ``content`` gives bytes, or
    anything that can be written as JSON (dataclasses, structs, dictionaries, times, ...), and by
    default is all arguments; None turns the comparison off. ``wait``: seconds to wait for an attempt
    in flight, the policy's by default.

    A call raises MissingKey or InvalidKey, StoreUnavailable when nothing could run, whatever the
    function raised, and for outcomes without a result what the module's table says; ConfigurationError
    when its content cannot be written as JSON. TypeError when it stands above a trigger decorator.
    """

    def protect(function: Callable[..., Any]) -> Callable[..., Any]:
        refuse_registered(function)
        codec = result_codec(function)
        name = name_of(function)
        signature = inspect.signature(function)

        def compared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str | None]:
            if content is None:
                return b"", None
            if content is not all_arguments:
                return _digested(content(*args, **kwargs), name)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _digested(bound.arguments, name)

        @functools.wraps(function)
        async def protected(*args: Any, **kwargs: Any) -> Any:
            own_key = checked(key(*args, **kwargs), what=f"deduplication key for {name}")
            body, fingerprint = compared(args, kwargs)
            delivery = Delivery(key=own_key, fingerprint=fingerprint, body=body)
            work = as_work(function, *args, **kwargs)
            handled = await consumer.handle(delivery, work, codec, wait=wait)
            return result_of(handled, consumer=consumer.name, key=own_key)

        return protected

    return protect


def result_of[R](handled: Handled[R], *, consumer: str, key: str) -> R | None:
    """The result of what became of a delivery; raises, as the module's table says, where there is none."""
    where = f"consumer {consumer}, key {key!r}"
    if handled.failed or handled.outcome is Outcome.FAILED:
        raise PermanentFailure(handled.reason, handled.description)
    if handled.outcome is Outcome.IN_FLIGHT:
        raise TransientFailure(
            f"{where}: another attempt is still in flight; try again in {handled.retry_after:.0f} s",
            retry_after=handled.retry_after,
        )
    if handled.outcome in (Outcome.MISMATCH, Outcome.QUARANTINED, Outcome.TOO_OLD):
        raise DeliveryRejected(f"{where}: {handled.description}", reason=handled.reason)
    if not handled.result_kept:
        raise ResultUnavailable(
            f"{where}: the work is done, but its result is not kept; read it where the work put it, "
            "or have the function return less (Policy.max_result_bytes)"
        )
    return handled.result


def _digested(content: object, name: str) -> tuple[bytes, str]:
    """The content as bytes, and its fingerprint."""
    if isinstance(content, bytes):
        return content, raw_bytes(content)
    try:
        body = canonical(content)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"what a call of {name} is compared by cannot be written as JSON ({error}): give "
            "idempotent(...) a content= that leaves it out, or content=None to compare nothing"
        ) from error
    return body, canonical_json(body)
