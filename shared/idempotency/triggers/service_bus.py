"""Service Bus messages, one per invocation: message -> delivery, outcome -> settlement.

==========================================  ====================================================
outcome                                     settlement
==========================================  ====================================================
processed, duplicate of success, stale      complete
in flight and waited; store down; transient paced: held, then left until its lock ends
mismatch, missing key, malformed            dead-letter with the reason
failed, duplicate of failure                dead-letter with the recorded reason
quarantined, too old                        dead-letter with the reason
any other exception                         held, then raised: the host abandons
==========================================  ====================================================
"""

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import azure.functions as func

from ..clock import Clock, SystemClock
from ..consumer import Protected
from ..errors import DeliveryRejected, StoreUnavailable, TransientFailure
from ..fingerprint import Fingerprint, canonical_json
from ..keys import checked
from ..records import Delivery, Handled, Outcome
from ..running import as_work
from .pacing import Pacing
from .protecting import Handler

DEDUPLICATION_KEY = "Deduplication-Key"
"""Application property that wins over MessageId: for re-sends that need a MessageId of their own."""
FIRST_ENQUEUED_TIME = "First-Enqueued-Time"
"""Application property of a re-send: when the message was first enqueued, ISO 8601."""
FORCED = "Forced-Resend"
"""Application property of an operator's forced re-send."""

_ACKNOWLEDGED = (Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE)
_log = logging.getLogger("idempotency.service_bus")


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


type Decorator = Callable[[Callable[..., Any]], Callable[..., Awaitable[None]]]


def idempotent(
    consumer: Protected,
    *,
    settlement: Settlement,
    fingerprint: Fingerprint | None = canonical_json,
    pacing: Pacing | None = None,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a Service Bus handler; stands below the trigger decorator.

    ``fingerprint`` digests the body, None turns the comparison of content off. The wrapped function
    is asynchronous whatever the handler is; where the settlement needs it, the wrapper adds the
    parameter ``actions`` for the worker to fill, and the handler need not name it.
    """
    pace = pacing or Pacing()
    time = clock or SystemClock()

    def protect(function: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        handler = Handler(function)
        codec = handler.codec()

        @functools.wraps(function)
        async def protected(*args: Any, **kwargs: Any) -> None:
            actions = kwargs.pop("actions", None) if settlement.actions_type else None
            message: func.ServiceBusMessage = handler.message(args, kwargs)
            try:
                delivery = to_delivery(message, fingerprint)
                work = as_work(function, *args, **kwargs)
                handled = await consumer.handle(delivery, work, codec)
            except DeliveryRejected as error:
                await settlement.dead_letter(
                    message, actions, reason=error.reason, description=str(error)
                )
            except (StoreUnavailable, TransientFailure) as error:
                held = pace.hold(message.delivery_count, at_least=error.retry_after or 0.0)
                _log.warning("%s: message paced for %.1f s: %s", consumer.name, held, error)
                await time.sleep(held)
                settlement.give_back(str(error))
            except Exception:
                await time.sleep(pace.hold(message.delivery_count))
                raise
            else:
                await _settle(handled, message, actions, settlement, pace, time)

        _add_actions(protected, handler, settlement.actions_type)
        return protected

    return protect


async def _settle(
    handled: Handled[Any],
    message: func.ServiceBusMessage,
    actions: Any,
    settlement: Settlement,
    pacing: Pacing,
    clock: Clock,
) -> None:
    if handled.outcome is Outcome.IN_FLIGHT:
        await clock.sleep(pacing.hold(message.delivery_count))
        settlement.give_back("another attempt is still in flight")
    elif handled.outcome in _ACKNOWLEDGED and not handled.failed:
        await settlement.complete(message, actions)
    else:
        await settlement.dead_letter(
            message, actions, reason=handled.reason, description=handled.description
        )


def to_delivery(message: func.ServiceBusMessage, fingerprint: Fingerprint | None) -> Delivery:
    """What the consumer needs to know of a message; raises DeliveryRejected when it cannot be told."""
    properties: Mapping[str, Any] = message.application_properties or {}
    key = checked(
        _text(properties.get(DEDUPLICATION_KEY)) or message.message_id,
        what="MessageId (or application property Deduplication-Key)",
    )
    body = message.get_body()
    return Delivery(
        key=key,
        fingerprint=fingerprint(body) if fingerprint else None,
        trigger="service_bus",
        redelivered=(message.delivery_count or 1) > 1,
        delivery_count=message.delivery_count,
        sequence_number=message.sequence_number,
        sent_at=_sent_at(message, _text(properties.get(FIRST_ENQUEUED_TIME))),
        correlation_id=message.correlation_id,
        trace_parent=_text(properties.get("traceparent") or properties.get("Diagnostic-Id")),
        forced=_text(properties.get(FORCED)) == "true",
        body=body,
    )


def _sent_at(message: func.ServiceBusMessage, first_enqueued: str | None) -> float | None:
    if first_enqueued:
        try:
            return datetime.fromisoformat(first_enqueued).timestamp()
        except ValueError:
            return None  # a time that cannot be read is no trusted time
    enqueued = message.enqueued_time_utc
    return enqueued.timestamp() if enqueued else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _add_actions(wrapper: Any, handler: Handler, actions_type: type[Any] | None) -> None:
    """Give the wrapper a signature that makes the worker inject the settlement client."""
    if actions_type is None:
        return
    parameter = inspect.Parameter(
        "actions", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=actions_type
    )
    parameters = [*handler.signature.parameters.values(), parameter]
    wrapper.__signature__ = handler.signature.replace(parameters=parameters)
    wrapper.__annotations__ = {**handler.function.__annotations__, "actions": actions_type}
