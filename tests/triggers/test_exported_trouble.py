"""Takeovers and fenced writes as Application Insights gets them."""

from pathlib import Path

import pytest

from local.host.invoker import Invoker
from local.services.telemetry_envelopes import Message
from local.services.telemetry_sink import TelemetrySink
from tests.triggers.test_worker_apps import App

FUNCTIONS = """
logging.getLogger().setLevel(logging.INFO)

from shared.idempotency import Record, Status, all_of
from shared.idempotency.stores.observed import ObservedStore

observer = all_of(Metrics(), Logs())
consumer = Consumer("charge", ObservedStore(store, observer), observer=observer)

@service_bus_trigger()
@service_bus.idempotent(consumer, settlement=BindingSettlement())
async def charge(message: func.ServiceBusMessage) -> None:
    if message.get_body() == b'"overtaken"':
        stored = await store.read("charge", message.message_id)
        await store.replace(stored.record.replaced(owner="another", status=Status.COMPLETED,
                                                   finished_at=1.0), stored.etag)

from shared.idempotency.events import UnfinishedCounted, UpkeepRan

@service_bus_trigger()
async def surveyed(message: func.ServiceBusMessage) -> None:
    observer(UpkeepRan(job="survey", result="done", items=3, duration=0.1))
    observer(UnfinishedCounted(consumer="charge", status=Status.QUARANTINED, records=3, oldest=7.0))

@service_bus_trigger()
async def crashed(message: func.ServiceBusMessage) -> None:
    # what an attempt leaves behind whose process died: its lease was over long ago
    await store.insert(Record(consumer="charge", key=message.message_id, owner="dead",
                              status=Status.IN_PROGRESS, lease=-60.0, started_at=1.0))
"""

pytestmark = pytest.mark.integration


def test_takeovers_fenced_writes_and_what_a_survey_counted_arrive_with_their_consumer(
    tmp_path: Path,
) -> None:
    app = App(tmp_path, FUNCTIONS)
    with TelemetrySink() as sink:
        with Invoker(app.folder, sink.environment(export_seconds=60.0)) as invoke:
            invoke("crashed", body="1", message_id="o-1")
            invoke("charge", body="1", message_id="o-1")
            invoke("surveyed", body="1", message_id="o-3")
            invoke("charge", body='"overtaken"', message_id="o-2")
        sink.wait_for(lambda s: s.total("idempotency.fenced"), timeout=15)
        sink.wait_for(lambda s: s.total("idempotency.takeovers"), timeout=15)

    [gauge] = sink.metrics("idempotency.unfinished", consumer="charge", status="quarantined")
    [age] = sink.metrics("idempotency.unfinished.age", consumer="charge", status="quarantined")
    assert (gauge.value, age.value) == (3, 7)
    assert sink.total("idempotency.upkeep.runs", job="survey", result="done") == 1
    assert sink.total("idempotency.takeovers", consumer="charge", policy="rerun") == 1
    assert sink.total("idempotency.fenced", consumer="charge") == 1
    assert sink.total("idempotency.fenced", consumer="charge", operation="complete") == 1
    said = [m.text for m in sink.envelopes(Message) if m.severity == 2]
    assert any("took over" in text for text in said)
    assert any("superseded" in text for text in said)
