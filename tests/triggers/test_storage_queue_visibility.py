"""A Storage queue message that becomes visible while it is in work: two hosts handle it, one effect stays."""

import signal
from pathlib import Path

import pytest
from azure.data.tables import TableClient
from azure.storage.queue import QueueClient

from local.host.process import ROOT, HostProcess
from local.services.azurite import Azurite
from tests.local.host.toy_app import ToyApp, eventually

pytestmark = pytest.mark.integration
PATIENCE = 60.0
HIDE = 2
"""Seconds for which a message stays invisible at a time."""

FUNCTIONS = f"""
import sys
sys.path.insert(1, {str(ROOT)!r})
from azure.data.tables.aio import TableClient
from shared.idempotency import Inbox, current_attempt, current_unit
from shared.idempotency.stores.table_inbox import TableInbox
from shared.idempotency.telemetry import Logs
from shared.idempotency.triggers import storage_queue

LONG = float(os.environ["LONG"])
table = TableClient.from_connection_string(os.environ["Storage"], os.environ["TABLE"])

async def poison(message, reason, description):
    effect("poison", reason)

@app.queue_trigger(arg_name="message", queue_name="%QUEUE%", connection="Storage")
@storage_queue.idempotent(
    Inbox("work", TableInbox(table), observer=Logs()),
    key=storage_queue.json_key("id"),
    poison_queue=poison,
)
async def work(message: func.QueueMessage) -> None:
    effect("begun", message.dequeue_count)
    began = time.monotonic()
    while not pathlib.Path(os.environ["GO"]).exists() or time.monotonic() - began < LONG:
        await asyncio.sleep(0.05)
    current_unit().create("effect-" + current_attempt().owner, {{"type": "effect"}})
"""
QUEUES = {"messageEncoding": "none", "maxPollingInterval": "00:00:00.2"}


class Bench:
    """A queue and a table of one test's own, and hosts that share them."""

    def __init__(self, folder: Path, azurite: Azurite, own: str, *, seconds: float = 0) -> None:
        """``seconds``: what the handler takes at the least."""
        self.app = ToyApp(folder, FUNCTIONS, queues=QUEUES)
        self.go = folder / "go"
        self._storage = azurite.connection_string
        self.environment = {
            "Storage": azurite.connection_string,
            "QUEUE": f"seen-{own}",
            "TABLE": f"seen{own}",
            "GO": str(self.go),
            "LONG": str(seconds),
            "LOCAL_HOST_HIDE": str(HIDE),
        }

    def host(self) -> HostProcess:
        return HostProcess(self.app.folder, environment=self.environment, port=None)

    def send(self, text: str) -> None:
        with QueueClient.from_connection_string(self._storage, self.environment["QUEUE"]) as queue:
            queue.send_message(text)

    def left(self) -> int:
        with QueueClient.from_connection_string(self._storage, self.environment["QUEUE"]) as queue:
            return queue.get_queue_properties().approximate_message_count or 0

    def effects(self) -> int:
        with TableClient.from_connection_string(self._storage, self.environment["TABLE"]) as table:
            return len(list(table.query_entities("type eq 'effect'")))

    def begun(self) -> list[int]:
        """The dequeue counts with which the handler began."""
        return [count for [count] in self.app.effects("begun")]


def test_given_a_host_that_stalls_when_its_message_becomes_visible_then_one_effect_is_committed(
    tmp_path: Path, azurite: Azurite
) -> None:
    bench = Bench(tmp_path, azurite, "stalled")
    with bench.host() as stalled:
        bench.send('{"id": "m-1"}')
        eventually(lambda: bench.begun() == [1], within=PATIENCE)
        stalled.signal(signal.SIGSTOP)
        try:
            with bench.host() as other:
                eventually(lambda: bench.begun() == [1, 2], within=PATIENCE)
                bench.go.touch()
                eventually(lambda: bench.left() == 0, within=PATIENCE)
                assert "work 'm-1': processed" in other.output
        finally:
            stalled.signal(signal.SIGCONT)
        # it goes on where it stood, with work that is done and a message that is gone
        eventually(lambda: "work 'm-1': duplicate" in stalled.output, within=PATIENCE)

    assert bench.effects() == 1
    assert bench.app.effects("poison") == []


def test_given_a_handler_that_takes_longer_than_its_message_is_hidden_then_it_stays_hidden(
    tmp_path: Path, azurite: Azurite
) -> None:
    bench = Bench(tmp_path, azurite, "long", seconds=3 * HIDE)
    bench.go.touch()
    with bench.host(), bench.host():
        bench.send('{"id": "m-1"}')
        eventually(bench.begun, within=PATIENCE)
        eventually(lambda: bench.left() == 0, within=PATIENCE)

    assert bench.begun() == [1]
    assert bench.effects() == 1
