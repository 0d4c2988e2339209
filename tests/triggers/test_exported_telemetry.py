"""What Application Insights gets of a protected function: the real worker and the real exporter."""

from collections.abc import Iterator

import pytest

from local.host.invoker import Invoker
from local.services.telemetry_envelopes import Dependency, Message
from local.services.telemetry_sink import TelemetrySink
from tests.triggers.test_worker_apps import App

TRACE_PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
FUNCTIONS = """
logging.getLogger().setLevel(logging.INFO)  # as the worker does in Azure

from shared.idempotency import all_of
from shared.idempotency.stores.observed import ObservedStore
from shared.idempotency.telemetry import Links

observer = all_of(Metrics(), Links(), Logs())
consumer = Consumer("process_order", ObservedStore(store, observer), observer=observer)

@service_bus_trigger()
@service_bus.idempotent(consumer, settlement=BindingSettlement())
async def process(message: func.ServiceBusMessage) -> None:
    effect("processed")
"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TelemetrySink]:
    """A sink that got all that an app said of three deliveries of one message and one mismatch."""
    app = App(tmp_path_factory.mktemp("app"), FUNCTIONS)
    with TelemetrySink() as sink:
        environment = sink.environment(export_seconds=0.3)
        with Invoker(app.folder, environment) as invoke:
            for sequence, body in ((1, "1"), (1, "1"), (2, "1"), (3, '"s3cret"')):
                invoke(
                    "process",
                    body=body,
                    message_id="o-1",
                    sequence_number=sequence,
                    delivery_count=2 if sequence == 1 else 1,
                    correlation_id="c-1",
                    application_properties={"traceparent": TRACE_PARENT},
                )
            deliveries = "idempotency.deliveries"
            sink.wait_for(lambda s: s.total(deliveries) == 4 and len(lines(s)) == 4, timeout=15)
            sink.wait_for(lambda s: len(duplicates(s)) == 2, timeout=15)
        yield sink


def lines(sink: TelemetrySink) -> list[Message]:
    return [m for m in sink.envelopes(Message) if m.attributes.get("consumer") == "process_order"]


def duplicates(sink: TelemetrySink) -> list[Dependency]:
    return [d for d in sink.envelopes(Dependency) if d.name == "process_order duplicate"]


def test_the_metrics_arrive_under_their_names_and_attributes(exported: TelemetrySink) -> None:
    name = {"consumer": "process_order", "trigger": "service_bus"}
    total = exported.total
    assert total("idempotency.deliveries", **name, outcome="processed") == 1
    assert total("idempotency.deliveries", **name, outcome="mismatch") == 1
    assert total("idempotency.duplicates", **name) == 2
    assert total("idempotency.duplicates", **name, cause="redelivery") == 1
    assert total("idempotency.duplicates", **name, cause="resend") == 1
    assert sum(m.count for m in exported.metrics("idempotency.duplicate.age", **name)) == 2
    inserts = exported.metrics("idempotency.store.duration", store="memory", operation="insert")
    assert sum(m.count for m in inserts) >= 1


def test_each_delivery_s_line_arrives_with_its_fields(exported: TelemetrySink) -> None:
    attributes = [line.attributes for line in lines(exported)]
    assert [a["outcome"] for a in attributes] == ["processed", "duplicate", "duplicate", "mismatch"]
    for fields in attributes:
        assert fields["key"] == "o-1"
        assert fields["correlation_id"] == "c-1"
        assert fields["trace_id"] == "a" * 32
    assert [line.severity for line in lines(exported)] == [1, 1, 1, 2]


def test_a_duplicate_arrives_linked_to_the_trace_that_did_the_work(
    exported: TelemetrySink,
) -> None:
    for span in duplicates(exported):
        assert "a" * 32 in span.attributes["_MS.links"]


def test_nothing_that_arrives_holds_a_payload(exported: TelemetrySink) -> None:
    everything = exported.envelopes(Message), exported.metrics(), exported.envelopes(Dependency)
    assert "s3cret" not in str(everything)
