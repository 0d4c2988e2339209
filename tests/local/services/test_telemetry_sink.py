"""What the real exporter sends arrives, adds up, and can be asked for."""

import http.client
import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from local.services.processes import LOOPBACK
from local.services.telemetry_envelopes import (
    Dependency,
    Envelope,
    ExceptionReport,
    Message,
    Metric,
    Request,
)
from local.services.telemetry_sink import TelemetrySink

# Set up by the environment alone, as the worker does it.
EMITTER = """
import logging
from azure.monitor.opentelemetry import configure_azure_monitor
configure_azure_monitor()
from opentelemetry import metrics, trace
meter, tracer = metrics.get_meter("test"), trace.get_tracer("test")
duplicates = meter.create_counter("idempotency.duplicates")
age = meter.create_histogram("idempotency.duplicate.age", "s")
for export in (3, 2, 0):
    if export:
        duplicates.add(export, {"consumer": "process_order", "cause": "resend"})
        duplicates.add(1, {"consumer": "process_order", "cause": "redelivery"})
        duplicates.add(10, {"consumer": "email_confirmation", "cause": "resend"})
        age.record(export / 2, {"consumer": "process_order"})
    metrics.get_meter_provider().force_flush()
with tracer.start_as_current_span("process orders", kind=trace.SpanKind.CONSUMER):
    with tracer.start_as_current_span(
        "POST", kind=trace.SpanKind.CLIENT,
        attributes={"http.method": "POST", "http.url": "http://payments.test/charges"},
    ):
        pass
    logging.getLogger("orders").warning("looks odd", extra={"consumer": "process_order"})
    try:
        raise LookupError("no such order")
    except LookupError:
        logging.getLogger("orders").exception("could not be handled")
"""


def emit(sink: TelemetrySink) -> None:
    environment = os.environ | sink.environment() | {"OTEL_SERVICE_NAME": "orders-app"}
    subprocess.run(  # noqa: S603  the program above
        [sys.executable, "-c", EMITTER], env=environment, check=True, timeout=30
    )


@pytest.fixture(scope="module")
def emitted() -> TelemetrySink:
    """A sink that has got everything two processes had to say."""
    with TelemetrySink() as sink:
        emit(sink)
        emit(sink)
        sink.wait_for(lambda s: len(thrown(s)) == 2, timeout=10)
    return sink


def thrown(sink: TelemetrySink) -> list[ExceptionReport]:
    """The reports of the app; the exporter now and then reports trouble of its own."""
    return [e for e in sink.envelopes(ExceptionReport) if e.type_name == "LookupError"]


@pytest.mark.integration
def test_given_several_exports_of_two_processes_then_a_counter_adds_up_to_its_total(
    emitted: TelemetrySink,
) -> None:
    duplicates = "idempotency.duplicates"
    assert emitted.total(duplicates, consumer="process_order") == 2 * (3 + 1 + 2 + 1)
    assert emitted.total(duplicates, consumer="process_order", cause="resend") == 2 * (3 + 2)
    assert emitted.total(duplicates, consumer="email_confirmation") == 2 * 20
    assert emitted.total(duplicates) == 2 * 27
    assert emitted.total(duplicates, consumer="nobody") == 0


@pytest.mark.integration
def test_given_a_counter_then_each_export_posts_its_increase_and_none_when_it_stood_still(
    emitted: TelemetrySink,
) -> None:
    posted = emitted.metrics("idempotency.duplicates", consumer="process_order", cause="resend")
    assert [metric.value for metric in posted] == [3, 2, 3, 2]


@pytest.mark.integration
def test_given_a_histogram_then_sum_count_and_extremes_arrive(emitted: TelemetrySink) -> None:
    first = emitted.metrics("idempotency.duplicate.age")[0]
    assert (first.value, first.count, first.minimum, first.maximum) == (1.5, 1, 1.5, 1.5)
    assert emitted.total("idempotency.duplicate.age") == 2 * 2.5


@pytest.mark.integration
def test_given_spans_and_log_lines_then_they_arrive_as_parts_of_one_operation(
    emitted: TelemetrySink,
) -> None:
    [request, _] = emitted.envelopes(Request)
    assert (request.name, request.success, request.role) == ("process orders", True, "orders-app")
    [dependency, _] = emitted.envelopes(Dependency)
    assert dependency.target == "payments.test"
    [message] = [m for m in emitted.envelopes(Message) if m.trace_id == request.trace_id]
    assert (message.text, message.severity) == ("looks odd", 2)
    assert message.attributes["consumer"] == "process_order"
    [report, _] = thrown(emitted)
    assert report.text == "could not be handled"
    assert "no such order" in report.stack
    operation = (request.trace_id, request.span_id)
    assert {(e.trace_id, e.parent_id) for e in (dependency, message, report)} == {operation}


def envelope(sink: TelemetrySink, value: float, **properties: str) -> dict[str, Any]:
    return {
        "name": "Microsoft.ApplicationInsights.Metric",
        "iKey": sink.instrumentation_key,
        "time": "2026-01-01T00:00:00Z",
        "data": {
            "baseType": "MetricData",
            "baseData": {"properties": properties, "metrics": [{"name": "sent", "value": value}]},
        },
    }


def test_given_a_question_over_http_then_it_is_answered_as_in_process() -> None:
    with TelemetrySink() as sink:
        sink.accept([envelope(sink, 2, consumer="a"), envelope(sink, 5, consumer="b")])
        question = f"{sink.url}query?metric=sent&consumer=b"
        with urllib.request.urlopen(question) as answer:  # noqa: S310  a loopback address
            assert json.load(answer) == {
                "metric": "sent",
                "attributes": {"consumer": "b"},
                "total": 5,
                "points": 1,
            }


def test_given_the_key_of_an_earlier_run_then_it_does_not_count() -> None:
    with TelemetrySink() as earlier, TelemetrySink() as sink:
        sink.accept([envelope(earlier, 100), envelope(sink, 1)])
        assert sink.total("sent") == 1
        assert len(sink.envelopes(Envelope)) == len(sink.envelopes(Metric)) == 1


def test_given_what_was_awaited_does_not_come_then_the_error_says_what_did() -> None:
    with TelemetrySink() as sink:
        sink.accept([envelope(sink, 2)])
        with pytest.raises(TimeoutError, match=r"not within 0.05 s; arrived so far: sent = 2"):
            sink.wait_for(lambda s: s.total("sent") == 3, timeout=0.05)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'[{"iKey": "KEY"}]', b"\xff"])
def test_given_a_post_that_makes_no_sense_then_it_is_refused_and_the_next_is_taken(
    body: bytes,
) -> None:
    with TelemetrySink() as sink:
        body = body.replace(b"KEY", sink.instrumentation_key.encode())
        assert post(sink, body) == 400
        assert post(sink, json.dumps([envelope(sink, 1)]).encode()) == 200
        assert sink.total("sent") == 1


def post(sink: TelemetrySink, body: bytes) -> int:
    connection = http.client.HTTPConnection(LOOPBACK, sink.port, timeout=5)
    try:
        connection.request("POST", "/v2.1/track", body)
        return connection.getresponse().status
    finally:
        connection.close()
