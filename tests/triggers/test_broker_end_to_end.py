"""Protected functions from a broker to their settlement: the real SDK, worker and settlement client."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.host.process import HostProcess
from local.servicebus import Broker, Entities, QueueSettings
from tests.local.host.toy_app import eventually
from tests.triggers.test_worker_apps import App

FUNCTIONS = """
from shared.idempotency import TransientFailure

@app.service_bus_queue_trigger(
    arg_name="message", queue_name="orders", connection="Bus", auto_complete_messages=False
)
@service_bus.idempotent(
    Consumer("process_order", store),
    settlement=BindingSettlement(),
    pacing=Pacing(first=0.05, longest=0.2),
)
async def process(message: func.ServiceBusMessage) -> None:
    effect("process", message.message_id, message.delivery_count)
    if message.get_body() == b'"later"' and message.delivery_count == 1:
        raise TransientFailure("the provider is down")
"""

pytestmark = pytest.mark.integration

type Send = Callable[..., None]


@pytest.fixture(scope="module")
def bus() -> Iterator[Broker]:
    queue = QueueSettings("orders", lock=timedelta(seconds=1))
    with Broker(Entities(queues=(queue,)), port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, bus: Broker) -> Iterator[App]:
    folder: Path = tmp_path_factory.mktemp("app")
    app = App(folder, FUNCTIONS)
    with HostProcess(folder, environment={"Bus": bus.connection_string}, port=None):
        yield app


@pytest.fixture
def send(app: App, bus: Broker) -> Iterator[Send]:
    with (
        ServiceBusClient.from_connection_string(bus.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        yield lambda body, key: sender.send_messages(ServiceBusMessage(body, message_id=key))


def test_a_duplicate_is_completed_and_a_mismatch_ends_among_the_dead_letters_with_its_reason(
    app: App, bus: Broker, send: Send
) -> None:
    for body in ('{"a": 1}', '{"a": 1}', '{"a": 2}'):
        send(body, "o-1")

    [dead] = eventually(lambda: bus.messages("orders/$deadletterqueue"))
    eventually(lambda: bus.counts("orders").completed == 2)
    assert (dead.message_id, dead.reason) == ("o-1", "PayloadMismatch")
    assert app.effects("process").count(["o-1", 1]) == 1


def test_a_delivery_that_must_come_back_is_left_to_its_lock_and_not_abandoned(
    app: App, bus: Broker, send: Send
) -> None:
    before = bus.counts("orders")
    send('"later"', "o-2")

    eventually(lambda: bus.counts("orders").completed == before.completed + 1)
    after = bus.counts("orders")
    assert [count for name, count in app.effects("process") if name == "o-2"] == [1, 2]
    assert after.abandoned == before.abandoned
    assert after.locks_expired == before.locks_expired + 1
