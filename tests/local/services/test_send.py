"""`make send`: the message that was asked for goes where the app reads, or the reason is told."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import run_file, send
from local.run_file import RunFile, Running
from local.services.processes import ServiceError

if TYPE_CHECKING:
    from local.servicebus import Broker

ORDER = {"order_id": "order-7", "amount": 3}


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(ORDER))
    return path


@pytest.fixture
def held(tmp_path: Path) -> Iterator[RunFile]:
    with RunFile(tmp_path / "local.json") as file:
        yield file


def running(service_bus: str | None) -> Running:
    return Running(
        url="http://127.0.0.1:7071/",
        storage="UseDevelopmentStorage=true",
        storage_queues=["orders"],
        telemetry="http://127.0.0.1:1/",
        service_bus=service_bus,
    )


@pytest.mark.integration
def test_given_a_body_with_an_order_id_then_it_is_the_message_id_of_what_arrives(
    order: Path, held: RunFile, broker: "Broker", capsys: pytest.CaptureFixture[str]
) -> None:
    from azure.servicebus import ServiceBusClient

    held.write(running(broker.connection_string))
    arguments = [str(order), "--run-file", str(held.path), "--property", "Deduplication-Key=a=b"]
    assert send.main(arguments) == 0
    assert "MessageId 'order-7' to 'orders'" in capsys.readouterr().out
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        [message] = receiver.receive_messages(max_message_count=1)
        receiver.complete_message(message)
    assert message.message_id == "order-7"
    assert json.loads(b"".join(message.body)) == ORDER
    assert message.application_properties == {b"Deduplication-Key": b"a=b"}
    assert message.content_type == "application/json"


@pytest.mark.integration
def test_given_an_empty_message_id_then_what_arrives_has_none(
    order: Path, held: RunFile, broker: "Broker", capsys: pytest.CaptureFixture[str]
) -> None:
    from azure.servicebus import ServiceBusClient

    held.write(running(broker.connection_string))
    assert send.main([str(order), "--run-file", str(held.path), "--message-id", ""]) == 0
    assert "with no MessageId" in capsys.readouterr().out
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        [message] = receiver.receive_messages(max_message_count=1)
        assert message.message_id is None


@pytest.mark.integration
def test_given_a_queue_that_does_not_exist_then_that_is_the_reason(
    order: Path, held: RunFile, broker: "Broker", capsys: pytest.CaptureFixture[str]
) -> None:
    held.write(running(broker.connection_string))
    arguments = [str(order), "--run-file", str(held.path), "--queue", "no-such-queue"]
    assert send.main(arguments) == 1
    assert "no-such-queue" in capsys.readouterr().err


@pytest.mark.parametrize("body", ["[]", "no json", '{"id": 1}'])
def test_given_a_body_without_order_id_and_no_message_id_then_it_is_not_sent(
    body: str, order: Path, held: RunFile, capsys: pytest.CaptureFixture[str]
) -> None:
    held.write(
        running(
            "Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true"
            ";SharedAccessKeyName=a;SharedAccessKey=b"
        )
    )
    order.write_text(body)
    assert send.main([str(order), "--run-file", str(held.path)]) == 1
    assert "not sent: no `order_id` in the file: give --message-id" in capsys.readouterr().err


def test_given_no_service_bus_when_it_is_asked_for_then_the_message_names_the_other_way(
    order: Path, held: RunFile, capsys: pytest.CaptureFixture[str]
) -> None:
    held.write(running(None))
    assert send.main([str(order), "--run-file", str(held.path), "--to", "service-bus"]) == 1
    assert "not sent: Service Bus does not run: add --to" in capsys.readouterr().err


def test_given_a_storage_queue_when_a_message_id_is_given_then_it_is_refused(
    order: Path, held: RunFile, capsys: pytest.CaptureFixture[str]
) -> None:
    held.write(running(None))
    assert send.main([str(order), "--run-file", str(held.path), "--message-id", "1"]) == 1
    assert "neither --message-id nor --property" in capsys.readouterr().err


def test_given_no_such_file_then_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert send.main(["/no/such/order.json"]) == 1
    assert "/no/such/order.json" in capsys.readouterr().err


def test_given_nothing_runs_then_the_message_tells_how_to_start(
    order: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert send.main([str(order), "--run-file", str(tmp_path / "local.json")]) == 1
    assert "the app does not run here: `make start`" in capsys.readouterr().err


def test_given_the_file_of_a_process_that_was_killed_then_nothing_runs(tmp_path: Path) -> None:
    path = tmp_path / "local.json"
    path.write_text(
        json.dumps({"url": "http://127.0.0.1:7071/", "processes": {"start": os.getpid()}})
    )
    with pytest.raises(ServiceError, match="does not run here"):
        run_file.read(path)
    with RunFile(path) as file:
        with pytest.raises(ServiceError, match="still starting"):
            run_file.read(path)
        file.write(running(None))
        assert run_file.read(path) == running(None)
        with pytest.raises(ServiceError, match="running already"), RunFile(path):
            pass
        assert run_file.read(path) == running(None)
    assert not path.exists()
