"""The Storage queue trigger against Azurite."""

import base64
from collections.abc import Iterator

import pytest
from azure.storage.queue import QueueClient

from local.host.process import HostProcess
from local.services.azurite import Azurite
from tests.local.host.toy_app import ToyApp, eventually

pytestmark = pytest.mark.integration

FUNCTIONS = """
@app.queue_trigger(arg_name="message", queue_name="toy-queue", connection="Storage")
async def handle(message: func.QueueMessage) -> None:
    body = message.get_body().decode()
    effect("handled", body, message.id, message.dequeue_count)
    if body == "fails once" and message.dequeue_count == 1:
        raise ValueError("the first time")
    if body == "always fails":
        raise ValueError("as always")

@app.queue_trigger(arg_name="message", queue_name="toy-crowd", connection="Storage")
async def crowd(message: func.QueueMessage) -> None:
    effect("begun")
    await asyncio.sleep(0.2)
    effect("ended")
"""
QUEUES = {
    "batchSize": 4,
    "newBatchThreshold": 0,
    "maxDequeueCount": 2,
    "maxPollingInterval": "00:00:00.2",
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> ToyApp:
    return ToyApp(tmp_path_factory.mktemp("app"), FUNCTIONS, queues=QUEUES)


@pytest.fixture(scope="module")
def host(app: ToyApp, azurite: Azurite) -> Iterator[HostProcess]:
    environment = {"Storage": azurite.connection_string}
    with HostProcess(app.folder, environment=environment, port=None) as host:
        yield host


@pytest.fixture
def queue(azurite: Azurite, host: HostProcess) -> Iterator[QueueClient]:
    """The queue, which the host has created."""
    with QueueClient.from_connection_string(azurite.connection_string, "toy-queue") as queue:
        yield queue


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def seen(app: ToyApp, body: str) -> list[int]:
    """The dequeue counts with which a message was handled."""
    return [count for text, _, count in app.effects("handled") if text == body]


def poison(azurite: Azurite) -> list[str]:
    with QueueClient.from_connection_string(azurite.connection_string, "toy-queue-poison") as queue:
        return [str(message.content) for message in queue.receive_messages(messages_per_page=32)]


def is_empty(queue: QueueClient) -> bool:
    return queue.get_queue_properties().approximate_message_count == 0


def test_a_handled_message_is_deleted(app: ToyApp, queue: QueueClient) -> None:
    queue.send_message(encoded("grüße"))

    eventually(lambda: seen(app, "grüße"))
    eventually(lambda: is_empty(queue))
    assert seen(app, "grüße") == [1]


def test_a_failed_message_comes_back_with_a_higher_count(app: ToyApp, queue: QueueClient) -> None:
    queue.send_message(encoded("fails once"))

    eventually(lambda: len(seen(app, "fails once")) == 2)
    eventually(lambda: is_empty(queue))
    assert seen(app, "fails once") == [1, 2]


def test_a_message_that_keeps_failing_ends_in_the_poison_queue(
    app: ToyApp, queue: QueueClient, azurite: Azurite
) -> None:
    queue.send_message(encoded("always fails"))

    eventually(lambda: len(seen(app, "always fails")) == 2)
    eventually(lambda: is_empty(queue))
    assert poison(azurite) == [encoded("always fails")]
    assert seen(app, "always fails") == [1, 2]


def test_a_message_in_another_encoding_ends_in_the_poison_queue_unread(
    app: ToyApp, queue: QueueClient, azurite: Azurite
) -> None:
    handled = len(app.effects("handled"))
    queue.send_message("{not base64}")

    eventually(lambda: is_empty(queue))
    assert poison(azurite) == ["{not base64}"]
    assert len(app.effects("handled")) == handled


def test_no_more_than_one_batch_runs_at_a_time(
    app: ToyApp, azurite: Azurite, host: HostProcess
) -> None:
    with QueueClient.from_connection_string(azurite.connection_string, "toy-crowd") as queue:
        for _ in range(9):
            queue.send_message(encoded("one of many"))
    eventually(lambda: len(app.effects("ended")) == 9)

    lines = (app.folder / "effects.log").read_text().splitlines()
    running, most = 0, 0
    for line in lines:
        running += {'["begun"]': 1, '["ended"]': -1}.get(line, 0)
        most = max(most, running)
    assert most == QUEUES["batchSize"]
