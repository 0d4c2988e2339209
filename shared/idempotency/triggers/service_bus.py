"""Service Bus messages, one per invocation: message -> delivery, outcome -> settlement.

`settling` says which outcome is settled how. Acknowledged is completed, set aside is dead-lettered.
Given back is left unsettled until its lock ends: abandoning it at once would burn its ten deliveries
in seconds. Only an exception that nobody expected is raised, and the host then abandons the message.
"""

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import azure.functions as func

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, InvalidKey
from ..fingerprint import Fingerprint, canonical_json
from ..keys import checked
from ..properties import DEDUPLICATION_KEY, FIRST_ENQUEUED_TIME, FORCED
from ..protected import Protected
from ..records import Delivery
from .body_keys import KeyOf
from .pacing import Pacing
from .protecting import Decorator, Handler
from .settling import settle
from .trace_context import trace_parent

_ACTIONS = "actions"


class Settlement(Protocol):
    """How messages are settled by hand; see settlement.py for the two ways."""

    @property
    def auto_complete(self) -> bool:
        """What the trigger's ``auto_complete_messages`` must be."""
        ...

    @property
    def actions_type(self) -> type[Any] | None:
        """The type of the parameter to be injected by the worker; None when there is none."""
        ...

    async def complete(self, message: func.ServiceBusMessage, actions: Any) -> None:
        """Acknowledge the message."""
        ...

    async def dead_letter(
        self, message: func.ServiceBusMessage, actions: Any, *, reason: str, description: str
    ) -> None:
        """Put the message where a person finds it, with the reason; then it is settled."""
        ...

    def give_back(self, why: str) -> None:
        """Let the message come back later; raises where only an exception can do that."""
        ...


def idempotent(
    consumer: Protected,
    *,
    settlement: Settlement,
    key: KeyOf | None = None,
    fingerprint: Fingerprint | None = canonical_json,
    pacing: Pacing | None = None,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a Service Bus handler; stands below the trigger decorator.

    ``key`` reads a business key out of the body, where the MessageId is not one. The trigger's
    ``auto_complete_messages`` must be ``settlement.auto_complete``: if the host completed by itself, a
    message left to come back would be lost. ``fingerprint`` digests the body,
    None turns the comparison of content off. The wrapped function is asynchronous whatever the
    handler is; where the settlement needs it, the wrapper adds the parameter ``actions`` for the
    worker to fill. The handler never sees it: a message is settled once, here.
    """
    pace = pacing or Pacing()
    time = clock or SystemClock()

    def protect[**P](function: Callable[P, object]) -> Callable[P, Coroutine[Any, Any, None]]:
        handler = Handler(function, func.ServiceBusMessage)
        codec = handler.codec()
        added = {_ACTIONS: settlement.actions_type} if settlement.actions_type else {}
        if added.keys() & handler.signature.parameters.keys():
            raise ConfigurationError(
                f"{handler.name}: leave out the parameter {_ACTIONS!r}: the message is settled by its "
                "outcome, and can be settled only once"
            )

        async def protected(*args: P.args, **kwargs: P.kwargs) -> None:
            actions = kwargs.pop(_ACTIONS, None) if added else None
            if added and actions is None:
                raise ConfigurationError(
                    f"{handler.name} was called without {_ACTIONS}=: nothing ran, since the message "
                    "could not be settled. The worker fills it in on Python 3.13 and later"
                )
            given = handler.message(args, kwargs)
            message = LockedMessage(
                given, actions, settlement, lambda: to_delivery(given, fingerprint, key)
            )
            work = handler.work(args, kwargs)
            await settle(consumer, message, work, codec, pacing=pace, clock=time)

        return handler.expose(protected, returns=None, **added)

    return protect


class LockedMessage:
    """A message under its lock, settled the way the app chose."""

    def __init__(
        self,
        message: func.ServiceBusMessage,
        actions: Any,
        settlement: Settlement,
        deliver: Callable[[], Delivery],
    ) -> None:
        self._message = message
        self._actions = actions
        self._settlement = settlement
        self._deliver = deliver

    @property
    def delivery_count(self) -> int | None:
        return self._message.delivery_count

    def delivery(self) -> Delivery:
        return self._deliver()

    async def acknowledge(self) -> None:
        await self._settlement.complete(self._message, self._actions)

    async def set_aside(self, reason: str, description: str) -> None:
        await self._settlement.dead_letter(
            self._message, self._actions, reason=reason, description=description
        )

    def give_back(self, error: Exception) -> None:
        self._settlement.give_back(str(error))


def to_delivery(
    message: func.ServiceBusMessage, fingerprint: Fingerprint | None, key: KeyOf | None = None
) -> Delivery:
    """What the consumer needs to know of a message; raises DeliveryRejected when it cannot be told."""
    properties: Mapping[str, Any] = message.application_properties or {}
    body = message.get_body()
    return Delivery(
        key=key(body) if key else _key_of(message, properties),
        fingerprint=fingerprint(body) if fingerprint else None,
        trigger="service_bus",
        redelivered=(message.delivery_count or 1) > 1,
        delivery_count=message.delivery_count,
        sequence_number=message.sequence_number,
        sent_at=_sent_at(message, properties.get(FIRST_ENQUEUED_TIME)),
        correlation_id=message.correlation_id,
        trace_parent=trace_parent(properties.get("traceparent"))
        or trace_parent(properties.get("Diagnostic-Id")),
        forced=str(properties.get(FORCED)).lower() == "true",
        body=body,
    )


def _key_of(message: func.ServiceBusMessage, properties: Mapping[str, Any]) -> str:
    if DEDUPLICATION_KEY not in properties:
        return checked(message.message_id, what=f"MessageId (or property {DEDUPLICATION_KEY})")
    # there, but empty: falling back to the MessageId would run a re-send unprotected
    value = properties[DEDUPLICATION_KEY]
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise InvalidKey(f"the property {DEDUPLICATION_KEY} must be text, or a whole number")
    text = None if value is None else str(value)
    return checked(text, what=f"value in its property {DEDUPLICATION_KEY}")


def _sent_at(message: func.ServiceBusMessage, first_enqueued: Any) -> float | None:
    """When the message was sent originally; a time that cannot be read is none."""
    try:
        sent = datetime.fromisoformat(first_enqueued)
    except (TypeError, ValueError):
        if message.enqueued_time_utc is None:
            return None
        sent = message.enqueued_time_utc
    return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
