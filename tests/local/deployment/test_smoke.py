"""`make smoke`: one order in two messages that only the app can tell to be the same."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.deployment import smoke
from local.run_file import RunFile, Running

if TYPE_CHECKING:
    from local.servicebus import Broker


@pytest.mark.integration
def test_two_messages_of_one_order_pass_the_broker_under_one_deduplication_key(
    broker: "Broker", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

    with RunFile(tmp_path / "local.json") as file:
        file.write(
            Running(
                url="http://127.0.0.1:7071/",
                storage="UseDevelopmentStorage=true",
                storage_queues=["orders"],
                telemetry="http://127.0.0.1:1/",
                service_bus=broker.connection_string,
            )
        )
        assert smoke.main(["--run-file", str(file.path)]) == 0

    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 2:
            received = receiver.receive_messages(max_message_count=2)
            assert received, "the second message did not arrive"
            messages += received
        for message in messages:
            receiver.complete_message(message)
    orders = [json.loads(str(message)) for message in messages]
    keys = [(message.application_properties or {})[b"Deduplication-Key"] for message in messages]
    key = orders[0]["order_id"]
    assert orders[0] == orders[1]
    assert keys == [key.encode()] * 2
    assert messages[0].message_id != messages[1].message_id
    assert f"customDimensions.key == '{key}'" in capsys.readouterr().out


def test_nothing_is_said_about_queries_when_nothing_was_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke.main(["--run-file", str(tmp_path / "none.json")]) == 1
    assert "traces" not in capsys.readouterr().out


def test_the_queries_ask_for_fields_and_metrics_that_the_app_sends() -> None:
    source = Path(smoke.__file__).parents[2] / "shared" / "idempotency" / "telemetry.py"
    sent = source.read_text()

    asked = re.findall(r"customDimensions\.(\w+)", smoke.QUERIES)
    metrics = re.findall(r"name == '([\w.]+)'", smoke.QUERIES)
    assert {"key", "outcome", "cause", "consumer"} == set(asked)
    assert all(f'"{name}"' in sent or f"{name}=" in sent for name in [*asked, *metrics])
    assert metrics == ["idempotency.duplicates"]
