"""Observers: events as OpenTelemetry metrics, and as one structured log line per delivery.

Metric names and attributes are stable. No key is ever a metric attribute, no payload ever logged.
"""

import logging
from collections.abc import Mapping

from opentelemetry import metrics

from .events import (
    DeliveryFaulted,
    DeliveryHandled,
    Event,
    Fenced,
    HandlerRan,
    ResultNotKept,
    StoreCalled,
    TakenOver,
)
from .records import Outcome

_OUTCOMES_TO_LOOK_AT = frozenset(
    {Outcome.MISMATCH, Outcome.FAILED, Outcome.QUARANTINED, Outcome.TOO_OLD}
)


class Metrics:
    """An observer that counts. Needs a meter provider: configure Azure Monitor before it is made."""

    def __init__(self) -> None:
        meter = metrics.get_meter("idempotency")
        self._deliveries = meter.create_counter("idempotency.deliveries")
        self._duplicates = meter.create_counter("idempotency.duplicates")
        self._age = meter.create_histogram("idempotency.duplicate.age", unit="s")
        self._takeovers = meter.create_counter("idempotency.takeovers")
        self._fenced = meter.create_counter("idempotency.fenced")
        self._store = meter.create_histogram("idempotency.store.duration", unit="s")
        self._handler = meter.create_histogram("idempotency.handler.duration", unit="s")

    def __call__(self, event: Event) -> None:
        match event:
            case DeliveryHandled():
                self._handled(event)
            case StoreCalled():
                attributes = {
                    "store": event.store,
                    "operation": event.operation,
                    "result": event.result,
                }
                self._store.record(event.duration, attributes)
            case HandlerRan():
                self._handler.record(event.duration, {"consumer": event.consumer})
            case TakenOver():
                self._takeovers.add(1, {"consumer": event.consumer, "policy": event.policy})
            case Fenced():
                self._fenced.add(1, {"consumer": event.consumer, "operation": event.operation})

    def _handled(self, event: DeliveryHandled) -> None:
        handled = event.handled
        of = {"consumer": event.consumer, "trigger": event.delivery.trigger}
        self._deliveries.add(1, {**of, "outcome": str(handled.outcome)})
        if handled.outcome is not Outcome.DUPLICATE:
            return
        self._duplicates.add(1, {**of, "cause": str(handled.cause)})
        if handled.age is not None:
            self._age.record(handled.age, of)


class Logs:
    """An observer that writes one line per delivery, its fields as the record's attributes."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("idempotency")

    def __call__(self, event: Event) -> None:
        match event:
            case DeliveryHandled():
                handled = event.handled
                urgent = handled.failed or handled.outcome in _OUTCOMES_TO_LOOK_AT
                self._line(
                    logging.WARNING if urgent else logging.INFO,
                    event,
                    {
                        "outcome": str(handled.outcome),
                        "cause": str(handled.cause or ""),
                        "attempt": handled.attempt,
                        "reason": handled.reason,
                    },
                )
            case DeliveryFaulted():
                self._line(logging.WARNING, event, {"outcome": "fault", "reason": event.error})
            case Fenced():
                self._log.warning(
                    "%s: a superseded attempt was refused to %s", event.consumer, event.operation
                )
            case TakenOver():
                self._log.warning("%s: attempt %d took over", event.consumer, event.attempt)
            case ResultNotKept():
                self._log.warning(
                    "%s: the result of %r was not kept: %s", event.consumer, event.key, event.cause
                )

    def _line(
        self,
        level: int,
        event: DeliveryHandled | DeliveryFaulted,
        fields: Mapping[str, object],
    ) -> None:
        delivery = event.delivery
        self._log.log(
            level,
            "%s %r: %s",
            event.consumer,
            delivery.key,
            " ".join(str(value) for value in (fields["outcome"], fields.get("cause")) if value),
            extra={
                "consumer": event.consumer,
                "key": delivery.key,
                "trigger": delivery.trigger,
                "delivery_count": delivery.delivery_count,
                "correlation_id": delivery.correlation_id,
                "trace_parent": delivery.trace_parent,
                "duration": event.duration,
                **fields,
            },
        )
