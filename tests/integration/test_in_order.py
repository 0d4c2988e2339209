"""A message of a session that has to come back is handled before its successors."""

from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.host.process import HostProcess
from local.servicebus import Broker, Entities, QueueSettings
from tests.integration.conftest import ROOT
from tests.local.host.toy_app import ToyApp, eventually

pytestmark = pytest.mark.integration

FUNCTIONS = f"""
import collections, sys
sys.path.insert(1, {str(ROOT)!r})
from shared.idempotency import State, TransientFailure, VersionGuard, apply_if_newer
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.triggers import service_bus
from shared.idempotency.triggers.in_order import InOrder
from shared.idempotency.triggers.pacing import Pacing
from shared.idempotency.triggers.settlement import BindingSettlement

store = MemoryStateStore()
deliveries = collections.Counter()

@app.function_name("appended")
@app.service_bus_queue_trigger(arg_name="message", queue_name="steps", connection="Bus",
                               is_sessions_enabled=True, auto_complete_messages=False)
@service_bus.idempotent(VersionGuard("appended", store), settlement=InOrder(BindingSettlement()),
                        pacing=Pacing(first=0.05))
async def appended(message: func.ServiceBusMessage) -> None:
    version = int(message.get_body())
    deliveries[version] += 1
    effect("seen", version, deliveries[version])
    if version == 2 and deliveries[version] < 4:
        raise TransientFailure("not now")
    def extended(current):
        steps = [*(current or {{"steps": []}})["steps"], version]
        effect("kept", steps)
        return {{"steps": steps}}
    apply_if_newer(State(id=message.session_id, version=version, document=extended))
"""


def test_given_a_message_that_fails_for_a_while_when_its_session_goes_on_then_no_successor_overtakes_it(
    tmp_path: Path,
) -> None:
    app = ToyApp(tmp_path, FUNCTIONS, serviceBus={"sessionIdleTimeout": "00:00:01"})
    # a lock far longer than the test: what is left to its lock would come too late
    entities = Entities(
        queues=(QueueSettings("steps", requires_session=True, lock=timedelta(minutes=5)),)
    )
    with (
        Broker(entities, port=0) as broker,
        HostProcess(app.folder, environment={"Bus": broker.connection_string}, port=None),
        ServiceBusClient.from_connection_string(broker.connection_string) as bus,
        bus.get_queue_sender("steps") as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(str(version), message_id=str(version), session_id="s")
                for version in range(1, 6)
            ]
        )

        eventually(lambda: broker.counts("steps").completed == 5, within=20)

    assert app.effects("seen") == [[1, 1], [2, 1], [2, 2], [2, 3], [2, 4], [3, 1], [4, 1], [5, 1]]
    assert app.effects("kept")[-1] == [[1, 2, 3, 4, 5]]
