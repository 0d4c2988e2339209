"""Observers: events as OpenTelemetry metrics and links, and as one structured log line per delivery.

Metric names and attributes are stable. No key is ever a metric attribute, no payload ever logged.
Instruments and tracers may be made before a provider is set: the API hands out proxies, which count
from the moment the provider is there. What happens before that is dropped.
"""

import logging
import re
import time
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context

from .events import (
    DeliveryFaulted,
    DeliveryHandled,
    EffectUnknown,
    Event,
    Fenced,
    HandlerRan,
    MessageRelayed,
    ResultNotKept,
    StepsChanged,
    StoreCalled,
    TakenOver,
    UnfinishedCounted,
    UpkeepRan,
)
from .records import Outcome

_NAME = "idempotency"
_OUTCOMES_TO_LOOK_AT = frozenset(
    {Outcome.MISMATCH, Outcome.FAILED, Outcome.QUARANTINED, Outcome.TOO_OLD}
)
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class Metrics:
    """An observer that counts."""

    def __init__(self) -> None:
        meter = metrics.get_meter(_NAME)
        self._deliveries = meter.create_counter("idempotency.deliveries")
        self._duplicates = meter.create_counter("idempotency.duplicates")
        self._age = meter.create_histogram("idempotency.duplicate.age", unit="s")
        self._takeovers = meter.create_counter("idempotency.takeovers")
        self._fenced = meter.create_counter("idempotency.fenced")
        self._relayed = meter.create_counter("idempotency.outbox.messages")
        self._store = meter.create_histogram("idempotency.store.duration", unit="s")
        self._handler = meter.create_histogram("idempotency.handler.duration", unit="s")
        self._upkeep = meter.create_counter("idempotency.upkeep.runs")
        self._upkeep_items = meter.create_counter("idempotency.upkeep.items")
        self._unfinished = meter.create_gauge("idempotency.unfinished")
        self._unfinished_age = meter.create_gauge("idempotency.unfinished.age", unit="s")

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
            case MessageRelayed():
                result = "sent" if event.sent else "left"
                self._relayed.add(
                    1, {"destination": event.destination, "by": event.by, "result": result}
                )
            case UpkeepRan():
                self._upkeep.add(1, {"job": event.job, "result": event.result})
                self._upkeep_items.add(event.items, {"job": event.job})
            case UnfinishedCounted():
                of = {"consumer": event.consumer, "status": str(event.status)}
                self._unfinished.set(event.records, of)
                self._unfinished_age.set(event.oldest, of)
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


class Links:
    """An observer that gives each duplicate a span, linked to the trace that did the work.

    The span is made when the outcome is known, and reaches back over the delivery's duration.
    """

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(_NAME)

    def __call__(self, event: Event) -> None:
        match event:
            case DeliveryHandled() if event.handled.outcome is Outcome.DUPLICATE:
                origin = _span_context(event.handled.origin)
                sender = _span_context(event.delivery.trace_parent)
                ended = time.time_ns()
                span = self._tracer.start_span(
                    f"{event.consumer} duplicate",
                    _continued(sender),
                    links=[trace.Link(origin)] if origin else [],
                    start_time=ended - int(event.duration * 1e9),
                    attributes={
                        "consumer": event.consumer,
                        "trigger": event.delivery.trigger,
                        "cause": str(event.handled.cause),
                    },
                )
                span.end(ended)


class Logs:
    """An observer that writes one line per delivery, its fields as the record's attributes.

    The fields are consumer, key, trigger, outcome, attempt, delivery_count, correlation_id, trace_id
    and duration (seconds), and where they apply cause and reason. A field that is not known is left
    out, as OpenTelemetry wants it.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger(_NAME)

    def __call__(self, event: Event) -> None:
        match event:
            case DeliveryHandled():
                handled = event.handled
                self._line(
                    handled.failed or handled.outcome in _OUTCOMES_TO_LOOK_AT,
                    event,
                    outcome=str(handled.outcome),
                    cause=None if handled.cause is None else str(handled.cause),
                    attempt=handled.attempt,
                    reason=handled.reason or None,
                )
            case DeliveryFaulted():
                self._line(True, event, outcome="fault", reason=event.error)
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

            case UpkeepRan():
                self._log.log(
                    logging.WARNING if event.result == "failed" else logging.INFO,
                    "%s: %s, %d records in %.1f s",
                    event.job,
                    event.result,
                    event.items,
                    event.duration,
                )
            case UnfinishedCounted() if event.records:
                self._log.warning(
                    "%s: %d records %s, the oldest unchanged for %.0f s",
                    event.consumer,
                    event.records,
                    event.status,
                    event.oldest,
                )
            case EffectUnknown():
                self._log.warning(
                    "%s: what step %r of %r did is not known: %s",
                    event.consumer,
                    event.step,
                    event.key,
                    event.error,
                )
            case StepsChanged():
                self._log.warning(
                    "%s: the steps of %r changed since its last attempt%s%s",
                    event.consumer,
                    event.key,
                    f"; no longer asked for: {', '.join(event.unused)}" if event.unused else "",
                    "; asked for in another order" if event.reordered else "",
                )

    def _line(self, urgent: bool, event: DeliveryHandled | DeliveryFaulted, **told: Any) -> None:
        level = logging.WARNING if urgent else logging.INFO
        if not self._log.isEnabledFor(level):
            return
        delivery = event.delivery
        origin = _span_context(delivery.trace_parent)
        fields = {
            "consumer": event.consumer,
            "key": delivery.key,
            "trigger": delivery.trigger,
            "delivery_count": delivery.delivery_count,
            "correlation_id": delivery.correlation_id,
            "trace_id": f"{origin.trace_id:032x}" if origin else None,
            "duration": event.duration,
            **told,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        said = " ".join(known[name] for name in ("outcome", "cause", "reason") if name in known)
        self._log.log(level, "%s %r: %s", event.consumer, delivery.key, said, extra=known)


def _continued(sender: trace.SpanContext | None) -> Context | None:
    """The context of a delivery's span: the invocation's, else that of the message's sender."""
    if sender is None or trace.get_current_span().get_span_context().is_valid:
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(sender))


def current_trace_parent() -> str | None:
    """The W3C traceparent of the present span, for a message that is sent in it; None outside any."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _span_context(trace_parent: str | None) -> trace.SpanContext | None:
    """The span a W3C traceparent names; None when there is none, or it is not one."""
    read = _TRACE_PARENT.fullmatch(trace_parent or "")
    if read is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in read.groups())
    context = trace.SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags)
    )
    return context if context.is_valid else None
