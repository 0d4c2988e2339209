"""The Event Grid trigger: event -> delivery, outcome -> done, sent again, or set aside.

`settling` says which outcome is settled how. Event Grid sends again, by its own schedule, what a function
fails at. It knows no dead letter with a reason, so what can never succeed is handed to ``set_aside``.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import azure.functions as func

from ..clock import Clock, SystemClock
from ..protected import Protected
from ..records import Delivery
from .cloud_event import CloudEvent, delivery_of, from_trigger
from .pacing import Pacing
from .protecting import Handler
from .settling import settle

__all__ = ["CloudEvent", "SetAside", "idempotent"]

_log = logging.getLogger("idempotency.event_grid")

type Arrived = func.EventGridEvent | func.CloudEvent
"""Whatever the annotation says, the worker hands over the one that the event's schema is of."""

type SetAside = Callable[[Arrived, str, str], Awaitable[None]]
"""Keeps an event with the reason and its description, where a person finds it."""

type Decorator = Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, None]]]

_PACING = Pacing(first=0.5, longest=5.0)
"""Event Grid gives an answer 30 seconds, and sends again at growing distances by itself."""


def idempotent(
    consumer: Protected,
    *,
    set_aside: SetAside,
    pacing: Pacing = _PACING,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a handler behind the Event Grid trigger; stands below the trigger decorator.

    The handler takes one CloudEvent, and nothing else, in whichever schema the subscription delivers.
    The trigger's ``arg_name`` is ``event``.
    """
    time = clock or SystemClock()

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, CloudEvent)
        codec = handler.codec()

        async def protected(event: func.EventGridEvent) -> None:
            arrived = _Arrival(event, set_aside)

            async def work() -> Any:
                return await handler.work((from_trigger(event),), {})()

            await settle(consumer, arrived, work, codec, pacing=pacing, clock=time)

        return handler.expose_instead(protected, event=func.EventGridEvent, returns=None)

    return protect


class _Arrival:
    """An event that Event Grid sends again unless the invocation succeeds."""

    delivery_count = None  # it does not tell

    def __init__(self, event: Arrived, set_aside: SetAside) -> None:
        self._event = event
        self._set_aside = set_aside

    def delivery(self) -> Delivery:
        return delivery_of(from_trigger(self._event), trigger="event_grid", digest="event1p")

    async def acknowledge(self) -> None:
        """The host answers Event Grid when the invocation has succeeded."""

    async def set_aside(self, reason: str, description: str) -> None:
        await self._set_aside(self._event, reason, description)
        _log.error("event %s was set aside: %s: %s", self._event.id, reason, description)

    def give_back(self, error: Exception) -> None:
        raise error
