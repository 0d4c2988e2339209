"""What Application Insights gets of the whole app: configured by the worker, or by the app itself."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from local.payments import PaymentProvider
from local.services.azurite import Azurite
from local.services.telemetry_envelopes import Dependency, Envelope, Message, Request
from local.services.telemetry_sink import TelemetrySink
from tests.integration.conftest import running_app
from tests.integration.messages import body_of, eventually, order

pytestmark = pytest.mark.integration

CONFIGURED = {
    "by the worker": {"PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "true"},
    # the second setting has the worker hand on the trace of each invocation, and nothing more
    "by the app": {
        "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "",
        "PYTHON_ENABLE_OPENTELEMETRY": "true",
    },
}
A_MINUTE = 60.0
"""The export interval of these tests: what arrives before was flushed at the end, or never arrives."""


@dataclass(frozen=True)
class Told:
    """What arrived of an app that took one order and its duplicates, and was stopped; and the trace."""

    sink: TelemetrySink
    trace_id: str
    order_id: str


@pytest.fixture(scope="module", params=CONFIGURED)
def told(request: pytest.FixtureRequest, azurite: Azurite) -> Iterator[Told]:
    content = order()
    trace_id = uuid.uuid4().hex
    with TelemetrySink() as sink, PaymentProvider() as provider:
        settings: dict[str, Any] = {
            **sink.environment(export_seconds=A_MINUTE),
            **CONFIGURED[request.param],
            "OTEL_SERVICE_NAME": "the-orders-app",
            "PAYMENT_PROVIDER_URL": provider.url,
        }
        with running_app(azurite, **settings) as app:
            headers = {
                "Idempotency-Key": content["order_id"],
                "traceparent": f"00-{trace_id}-{'b' * 16}-01",
            }
            # its acknowledgement is lost: the broker hands it out again
            app.broker.faults.lose_settlement("orders")
            assert app.http.post("/orders", json=content, headers=headers).status_code == 202
            key: dict[str | bytes, Any] = {"Deduplication-Key": content["order_id"]}
            eventually(lambda: app.broker.counts("orders").completed == 1, what="the redelivery")
            eventually(
                lambda: app.broker.counts("order-events/subscriptions/payments").completed,
                what="the payment",
            )
            again = body_of(content)
            app.send(ServiceBusMessage(again, message_id="again", application_properties=key))
            eventually(lambda: app.broker.counts("orders").completed == 2, what="the re-send")
            other = body_of({**content, "currency": "USD"})
            app.send(ServiceBusMessage(other, message_id="other", application_properties=key))
            eventually(lambda: app.broker.messages("orders/$deadletterqueue"), what="the mismatch")
        yield Told(sink, trace_id, content["order_id"])


def test_every_delivery_is_counted_once_by_consumer_outcome_and_cause(told: Told) -> None:
    total = told.sink.total
    of = {"consumer": "process_order", "trigger": "service_bus"}

    assert total("idempotency.deliveries", **of) == 4
    for outcome, count in {"processed": 1, "duplicate": 2, "mismatch": 1}.items():
        assert total("idempotency.deliveries", **of, outcome=outcome) == count
    assert total("idempotency.duplicates", **of, cause="redelivery") == 1
    assert total("idempotency.duplicates", **of, cause="resend") == 1
    assert total("idempotency.deliveries", consumer="submit_order", outcome="processed") == 1


def test_how_long_after_the_original_a_duplicate_came_is_measured(told: Told) -> None:
    ages = told.sink.metrics("idempotency.duplicate.age", consumer="process_order")

    assert sum(each.count for each in ages) == 2
    # the lock of three seconds had to end first
    assert max(each.maximum or 0.0 for each in ages) >= 2.0


def test_one_order_is_followed_from_http_to_its_payment_by_operation_id(
    told: Told,
) -> None:
    of_order = [e for e in told.sink.envelopes(Message) if e.trace_id == told.trace_id]
    spans = [e.name for e in told.sink.envelopes(Dependency) if e.trace_id == told.trace_id]

    consumers = {e.attributes.get("consumer") for e in of_order}
    assert consumers >= {"submit_order", "process_order", "charge_payment"}
    assert any("submit_transaction" in name for name in spans), "the order is written under it"
    redelivered = [n for n in spans if n == "process_order duplicate"]
    assert len(redelivered) == 1


def test_each_duplicate_is_linked_to_the_trace_that_did_the_work(told: Told) -> None:
    duplicates = [e for e in told.sink.envelopes(Dependency) if e.name == "process_order duplicate"]

    assert {e.attributes["cause"] for e in duplicates} == {"redelivery", "resend"}
    for each in duplicates:
        assert told.trace_id in each.attributes["_MS.links"]


def test_everything_comes_under_the_app_s_name(told: Told) -> None:
    assert {e.role for e in told.sink.envelopes(Envelope)} == {"the-orders-app"}


def test_what_the_host_does_by_itself_is_not_the_app_s(told: Told) -> None:
    spans = told.sink.envelopes(Dependency) + told.sink.envelopes(Request)

    for name in (each.name for each in spans):
        assert not name.startswith(("ServiceBus.receive", "ServiceBus.complete")), name
        assert "receive_messages" not in name


def test_no_metric_tells_a_key(told: Told) -> None:
    ours = [m for m in told.sink.metrics() if m.name.startswith("idempotency.")]

    assert ours
    assert told.order_id not in str([m.attributes for m in ours])
