"""Metrics, links and log lines: exact names, and never a key or a payload where it does not belong."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.idempotency import (
    Cause,
    Consumer,
    Delivery,
    Handled,
    Observer,
    Outcome,
    PermanentFailure,
    Policy,
    ResultCodec,
    all_of,
    telemetry,
)
from shared.idempotency.events import (
    DeliveryFaulted,
    DeliveryHandled,
    Event,
    Fenced,
    HandlerRan,
    ResultNotKept,
    StoreCalled,
    TakenOver,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.observed import ObservedStore
from shared.idempotency.telemetry import Links, Logs, Metrics

ROOT = Path(__file__).parents[2]
TRACE_ID, SPAN_ID = "a" * 32, "b" * 16
TRACE_PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
LOGGER = "tests.idempotency"

type Points = dict[str, dict[tuple[tuple[str, Any], ...], float]]


class Meters:
    """A meter provider in memory, and what was counted so far."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader])

    def points(self) -> Points:
        """By metric and attributes: a counter's value, a histogram's sum."""
        data = self._reader.get_metrics_data()
        found: Points = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        value = point.value if isinstance(point, NumberDataPoint) else point.sum
                        of = tuple(sorted((point.attributes or {}).items()))
                        found.setdefault(metric.name, {})[of] = value
        return found


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meters]:
    meters = Meters()
    monkeypatch.setattr(metrics, "get_meter", meters.provider.get_meter)
    yield meters
    meters.provider.shutdown()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def handled(outcome: Outcome, delivery: Delivery | None = None, **fields: Any) -> DeliveryHandled:
    return DeliveryHandled(
        consumer="process_order",
        delivery=delivery or Delivery(key="o-1", trigger="service_bus"),
        handled=Handled(outcome=outcome, **fields),
        duration=0.25,
    )


def of(**attributes: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(attributes.items()))


# Metrics


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_delivery_counts_under_its_consumer_trigger_and_outcome(
    meters: Meters, outcome: Outcome
) -> None:
    observe = Metrics()
    observe(handled(outcome))
    observe(handled(outcome))
    point = of(consumer="process_order", trigger="service_bus", outcome=outcome.value)
    assert meters.points()["idempotency.deliveries"] == {point: 2}


def test_a_duplicate_counts_under_its_cause_and_its_age_is_measured(meters: Meters) -> None:
    observe = Metrics()
    observe(handled(Outcome.DUPLICATE, cause=Cause.REDELIVERY, age=3.0))
    observe(handled(Outcome.DUPLICATE, cause=Cause.RESEND, age=60.0))
    observe(handled(Outcome.DUPLICATE, cause=Cause.RESEND))
    observe(handled(Outcome.PROCESSED))
    common = {"consumer": "process_order", "trigger": "service_bus"}
    assert meters.points()["idempotency.duplicates"] == {
        of(**common, cause="redelivery"): 1,
        of(**common, cause="resend"): 2,
    }
    assert meters.points()["idempotency.duplicate.age"] == {of(**common): 63.0}


def test_takeovers_fencings_and_durations_have_their_names_and_attributes(meters: Meters) -> None:
    observe = Metrics()
    observe(TakenOver(consumer="c", attempt=2, policy="reconcile"))
    observe(Fenced(consumer="c", operation="complete"))
    observe(HandlerRan(consumer="c", duration=1.5))
    observe(StoreCalled(store="table", operation="insert", result="refused", duration=0.5))
    assert meters.points() == {
        "idempotency.takeovers": {of(consumer="c", policy="reconcile"): 1},
        "idempotency.fenced": {of(consumer="c", operation="complete"): 1},
        "idempotency.handler.duration": {of(consumer="c"): 1.5},
        "idempotency.store.duration": {
            of(store="table", operation="insert", result="refused"): 0.5
        },
    }


async def test_one_consumer_s_life_counts_each_thing_once_and_no_key_is_an_attribute(
    meters: Meters,
) -> None:
    observe = Metrics()
    consumer, handle = consumer_told_by(observe)
    for number in (1, 2):
        await handle(Delivery(key="s3cret-key", trigger="http", sequence_number=number))
    points = meters.points()

    name = {"consumer": consumer.name, "trigger": "http"}
    assert points["idempotency.deliveries"] == {
        of(**name, outcome="processed"): 1,
        of(**name, outcome="duplicate"): 1,
    }
    assert points["idempotency.duplicates"] == {of(**name, cause="resend"): 1}
    assert len(points["idempotency.handler.duration"]) == 1
    results = {
        dict(p)["operation"]: dict(p)["result"] for p in points["idempotency.store.duration"]
    }
    assert results == {"insert": "refused", "replace": "ok", "read": "ok"}
    assert "s3cret" not in str(points)


def test_instruments_made_before_the_provider_is_set_count_from_then_on() -> None:
    program = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from shared.idempotency import Delivery, Handled, Outcome
from shared.idempotency.events import DeliveryHandled
from shared.idempotency.telemetry import Links, Metrics

count, link = Metrics(), Links()
event = DeliveryHandled(consumer="c", delivery=Delivery(key="k"), duration=1.0,
                        handled=Handled(outcome=Outcome.DUPLICATE, age=1.0))
count(event), link(event)
reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
count(event), link(event)
scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
counts = {m.name: [p.value for p in m.data.data_points] for m in scope.metrics if "age" not in m.name}
print(sorted(counts.items()), len(exporter.get_finished_spans()))
"""
    done = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.strip() == (
        "[('idempotency.deliveries', [1]), ('idempotency.duplicates', [1])] 1"
    ), done.stderr


# Links


def test_a_duplicate_s_span_links_to_the_attempt_that_did_the_work(
    spans: InMemorySpanExporter,
) -> None:
    Links()(handled(Outcome.DUPLICATE, cause=Cause.RESEND, origin=TRACE_PARENT))
    [span] = spans.get_finished_spans()
    [link] = span.links
    assert f"{link.context.trace_id:032x}" == TRACE_ID
    assert f"{link.context.span_id:016x}" == SPAN_ID
    assert span.name == "process_order duplicate"
    assert dict(span.attributes or {}) == {
        "consumer": "process_order",
        "trigger": "service_bus",
        "cause": "resend",
    }
    assert lasted(span) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "origin", [None, "", "nonsense", f"00-{'0' * 32}-{SPAN_ID}-01", TRACE_PARENT + "-x"]
)
def test_a_duplicate_of_an_unknown_trace_has_a_span_without_link(
    spans: InMemorySpanExporter, origin: str | None
) -> None:
    Links()(handled(Outcome.DUPLICATE, origin=origin))
    [span] = spans.get_finished_spans()
    assert not span.links


def test_nothing_but_a_duplicate_has_a_span_of_ours(spans: InMemorySpanExporter) -> None:
    for outcome in set(Outcome) - {Outcome.DUPLICATE}:
        Links()(handled(outcome, origin=TRACE_PARENT))
    assert spans.get_finished_spans() == ()


# Log lines


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def logs() -> Logs:
    return Logs(logging.getLogger(LOGGER))


def test_each_delivery_has_one_line_with_its_fields(log: pytest.LogCaptureFixture) -> None:
    delivery = Delivery(
        key="o-1",
        trigger="service_bus",
        delivery_count=2,
        correlation_id="c-1",
        trace_parent=TRACE_PARENT,
    )
    logs()(handled(Outcome.DUPLICATE, delivery, cause=Cause.REDELIVERY, attempt=1))
    [record] = log.records
    assert record.getMessage() == "process_order 'o-1': duplicate redelivery"
    fields = {
        "consumer": "process_order",
        "key": "o-1",
        "trigger": "service_bus",
        "outcome": "duplicate",
        "cause": "redelivery",
        "attempt": 1,
        "delivery_count": 2,
        "correlation_id": "c-1",
        "trace_id": TRACE_ID,
        "duration": 0.25,
    }
    assert fields.items() <= vars(record).items()


def test_a_field_that_is_not_known_is_left_out(log: pytest.LogCaptureFixture) -> None:
    logs()(handled(Outcome.PROCESSED))
    unknown = {"cause", "attempt", "reason", "delivery_count", "correlation_id", "trace_id"}
    assert not unknown & vars(log.records[0]).keys()


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (handled(Outcome.PROCESSED), logging.INFO),
        (handled(Outcome.DUPLICATE), logging.INFO),
        (handled(Outcome.IN_FLIGHT), logging.INFO),
        (handled(Outcome.STALE), logging.INFO),
        (handled(Outcome.DUPLICATE, failed=True), logging.WARNING),
        (handled(Outcome.MISMATCH), logging.WARNING),
        (handled(Outcome.FAILED), logging.WARNING),
        (handled(Outcome.QUARANTINED), logging.WARNING),
        (handled(Outcome.TOO_OLD), logging.WARNING),
        (
            DeliveryFaulted(
                consumer="c", delivery=Delivery(key="k"), error="LookupError", duration=1
            ),
            logging.WARNING,
        ),
        (TakenOver(consumer="c", attempt=2), logging.WARNING),
        (Fenced(consumer="c", operation="complete"), logging.WARNING),
        (ResultNotKept(consumer="c", key="k", cause="too large"), logging.WARNING),
    ],
)
def test_what_a_person_should_look_at_is_a_warning(
    log: pytest.LogCaptureFixture, event: Event, level: int
) -> None:
    logs()(event)
    assert [record.levelno for record in log.records] == [level]


@pytest.mark.parametrize("key", ["a\nprocess_order 'o-2': processed", "\x1b[2J", "\0", "\ud800"])
def test_a_key_cannot_forge_a_line_of_its_own(log: pytest.LogCaptureFixture, key: str) -> None:
    logs()(handled(Outcome.PROCESSED, Delivery(key=key)))
    message = log.records[0].getMessage()
    assert message.isprintable()
    assert message.isascii()


async def test_no_payload_shows_in_a_line_a_measurement_a_span_or_a_repr(
    meters: Meters, spans: InMemorySpanExporter, log: pytest.LogCaptureFixture
) -> None:
    log.set_level(logging.DEBUG)
    events: list[Event] = []
    _, handle = consumer_told_by(all_of(Metrics(), Links(), logs(), events.append))
    body = b'{"card": "s3cret"}'
    for key, error in (("1", None), ("2", PermanentFailure("No")), ("3", LookupError("gone"))):
        for number in (1, 2):
            delivery = Delivery(key=key, body=body, sequence_number=number, fingerprint=str(number))
            if isinstance(error, LookupError):
                with pytest.raises(LookupError):
                    await handle(delivery, error)
            else:
                await handle(delivery, error)
    told = [log.text, events, meters.points(), [s.to_json() for s in spans.get_finished_spans()]]
    told += [vars(record) for record in log.records]
    assert len(events) > 12
    assert "s3cret" not in "\n".join(str(what) for what in told)


def consumer_told_by(observer: Observer) -> tuple[Consumer, Any]:
    """A consumer whose every event the observer gets, and a call that hands it a delivery."""
    store = ObservedStore(MemoryStore(), observer)
    policy = Policy(lease=0.2, heartbeat=0.05, wait=0.2, deadline=1.0, memory=0)
    consumer = Consumer("process_order", store, policy=policy, observer=observer)

    async def handle(delivery: Delivery, error: Exception | None = None) -> Handled[str]:
        async def work() -> str:
            if error:
                raise error
            return "made"

        return await consumer.handle(delivery, work, ResultCodec(str))

    return consumer, handle


def lasted(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_duplicate_outside_any_invocation_continues_the_trace_of_its_sender() -> None:
    sender = f"00-{'5' * 32}-{'6' * 16}-01"
    context = telemetry._continued(telemetry._span_context(sender))

    assert context is not None
    inside = trace.get_current_span(context).get_span_context()
    assert f"{inside.trace_id:032x}" == "5" * 32
    assert telemetry._continued(None) is None


def test_the_present_span_is_told_as_a_traceparent_and_none_is_none() -> None:
    parent = f"00-{'7' * 32}-{'8' * 16}-01"
    assert telemetry.current_trace_parent() is None

    span = trace.NonRecordingSpan(telemetry._span_context(parent))  # type: ignore[arg-type]
    with trace.use_span(span):
        assert telemetry.current_trace_parent() == parent
        assert telemetry._continued(telemetry._span_context(parent)) is None
