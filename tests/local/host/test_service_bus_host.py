"""The Service Bus trigger: the real SDK, worker and settlement client against a broker."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from local.host.process import HostProcess
from local.servicebus import Broker, Entities, QueueSettings, TopicSettings
from tests.local.host.toy_app import ToyApp, eventually

pytestmark = pytest.mark.integration

FUNCTIONS = """
@app.service_bus_queue_trigger(arg_name="message", queue_name="plain", connection="Bus")
async def plain(message: func.ServiceBusMessage) -> None:
    body = message.get_body()
    effect("plain", body.hex(), message.message_id, message.delivery_count)
    if body == b"fails once" and message.delivery_count == 1:
        raise ValueError("the first time")
    if body.startswith(b"slow"):
        await asyncio.sleep(float(body[5:]))
        effect("slow ended")

@app.service_bus_queue_trigger(arg_name="message", queue_name="manual", connection="Bus",
                               auto_complete_messages=False)
async def manual(message: func.ServiceBusMessage, actions: ServiceBusMessageActions) -> None:
    body = message.get_body().decode()
    effect("manual", body, message.delivery_count, time.monotonic())
    settle = {"dead-letter": lambda: actions.deadletter(message, "PayloadMismatch", "amount"),
              "complete": lambda: actions.complete(message),
              "complete, then fail": lambda: actions.complete(message),
              "abandon once": lambda: actions.abandon(message),
              "defer": lambda: actions.defer(message)}.get(body)
    if settle and not (body == "abandon once" and message.delivery_count > 1):
        await asyncio.to_thread(settle)
    if body == "settle late":
        threading.Timer(0.3, late, [actions, message]).start()
    if "fail" in body or body == "abandon once" and message.delivery_count > 1:
        await asyncio.to_thread(actions.complete, message) if "once" in body else boom()

def boom():
    raise ValueError("after all")

def late(actions, message):
    try:
        actions.complete(message)
        effect("late", "settled")
    except Exception as error:
        effect("late", str(error))

@app.service_bus_queue_trigger(arg_name="message", queue_name="crowd", connection="Bus")
async def crowd(message: func.ServiceBusMessage) -> None:
    effect("crowd", +1)
    await asyncio.sleep(0.1)
    effect("crowd", -1)

@app.service_bus_queue_trigger(arg_name="message", queue_name="blocked", connection="Bus")
async def blocked(message: func.ServiceBusMessage) -> None:
    effect("blocked", message.delivery_count)
    time.sleep(1.6)  # a handler that blocks its loop for longer than the lock lasts

@app.service_bus_topic_trigger(arg_name="message", topic_name="%TOPIC%",
                               subscription_name="%SUBSCRIPTION%", connection="Bus")
async def subscriber(message: func.ServiceBusMessage) -> None:
    effect("subscriber", message.get_body().decode(), dict(message.application_properties))

@app.service_bus_queue_trigger(arg_name="messages", queue_name="batched", connection="Bus",
                               cardinality="many", data_type="binary")
async def batched(messages: __import__("typing").List[func.ServiceBusMessage]) -> None:
    effect("batched", [[m.get_body().decode(), m.message_id, m.delivery_count] for m in messages])

@app.service_bus_queue_trigger(arg_name="messages", queue_name="untyped", connection="Bus",
                               cardinality="many")
async def untyped(messages: __import__("typing").List[func.ServiceBusMessage]) -> None:
    effect("untyped", [m.get_body().decode() for m in messages])

@app.service_bus_queue_trigger(arg_name="message", queue_name="sessions", connection="Bus",
                               is_sessions_enabled=True)
async def in_session(message: func.ServiceBusMessage) -> None:
    effect("session", message.session_id, int(message.get_body()), "begun")
    await asyncio.sleep(0.02)
    effect("session", message.session_id, int(message.get_body()), "ended")
"""
SETTINGS = {"maxConcurrentCalls": 3, "maxConcurrentSessions": 2, "sessionIdleTimeout": "00:00:00.3"}
BRIEF = timedelta(seconds=1)
ENTITIES = Entities(
    queues=(
        QueueSettings("plain"),
        QueueSettings("manual", lock=BRIEF),
        QueueSettings("crowd"),
        QueueSettings("blocked", lock=BRIEF),
        QueueSettings("batched"),
        QueueSettings("untyped"),
        QueueSettings("sessions", requires_session=True),
    ),
    topics=(TopicSettings("events", subscriptions=(QueueSettings("mail"),)),),
)


@pytest.fixture(scope="module")
def bus() -> Iterator[Broker]:
    with Broker(ENTITIES, port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> ToyApp:
    return ToyApp(tmp_path_factory.mktemp("app"), FUNCTIONS, serviceBus=SETTINGS)


def environment(broker: Broker) -> dict[str, str | None]:
    return {"Bus": broker.connection_string, "TOPIC": "events", "SUBSCRIPTION": "mail"}


@pytest.fixture(scope="module")
def host(app: ToyApp, bus: Broker) -> Iterator[HostProcess]:
    with HostProcess(app.folder, environment=environment(bus), port=None) as host:
        yield host


Send = Callable[..., None]


@contextmanager
def sending(broker: Broker) -> Iterator[Send]:
    """Send messages to a queue or topic, over connections that are closed at the end."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        ExitStack() as opened,
    ):
        senders: dict[str, ServiceBusSender] = {}

        def send(entity: str, *messages: ServiceBusMessage) -> None:
            if entity not in senders:
                # For sending, a topic is as good as a queue.
                senders[entity] = opened.enter_context(client.get_queue_sender(entity))
            senders[entity].send_messages(list(messages))

        yield send


@pytest.fixture(scope="class")
def send(bus: Broker) -> Iterator[Send]:
    """For tests that leave the broker's connections alone."""
    with sending(bus) as send:
        yield send


def seen(app: ToyApp, name: str, body: Any) -> list[list[Any]]:
    return [effect[1:] for effect in app.effects(name) if effect[0] == body]


@pytest.mark.usefixtures("host")
class TestAutoComplete:
    def test_a_handled_message_is_completed(self, app: ToyApp, bus: Broker, send: Send) -> None:
        before = bus.counts("plain").completed
        send("plain", ServiceBusMessage(b"\xff\x00", message_id="m-1"))

        eventually(lambda: bus.counts("plain").completed == before + 1)
        assert seen(app, "plain", "ff00") == [["m-1", 1]]

    def test_a_failed_message_is_abandoned_and_counted(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        before = bus.counts("plain")
        send("plain", ServiceBusMessage("fails once", message_id="m-2"))

        eventually(lambda: bus.counts("plain").completed == before.completed + 1)
        assert seen(app, "plain", b"fails once".hex()) == [["m-2", 1], ["m-2", 2]]
        assert bus.counts("plain").abandoned == before.abandoned + 1

    def test_no_more_calls_run_at_a_time_than_host_json_allows(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("crowd", *(ServiceBusMessage(str(n)) for n in range(30)))
        eventually(lambda: bus.counts("crowd").completed == 30)

        running = most = 0
        for [step] in app.effects("crowd"):
            running += step
            most = max(most, running)
        assert most == SETTINGS["maxConcurrentCalls"]

    def test_a_function_that_blocks_its_loop_keeps_its_lock(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("blocked", ServiceBusMessage("x"))

        eventually(lambda: bus.counts("blocked").completed == 1)
        assert app.effects("blocked") == [[1]]
        assert bus.counts("blocked").locks_expired == 0

    def test_a_subscription_is_served_under_names_from_settings(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("events", ServiceBusMessage("e", application_properties={"a": "b", "n": 1}))

        eventually(lambda: app.effects("subscriber"))
        assert app.effects("subscriber") == [["e", {"a": "b", "n": 1}]]


@pytest.mark.usefixtures("host")
class TestSettlementActions:
    def test_a_dead_lettered_message_keeps_its_reason(self, bus: Broker, send: Send) -> None:
        send("manual", ServiceBusMessage("dead-letter", message_id="d-1"))

        [dead] = eventually(lambda: bus.messages("manual/$deadletterqueue"))
        assert dead.message_id == "d-1"
        assert (dead.reason, dead.description) == ("PayloadMismatch", "amount")

    @pytest.mark.parametrize("body", ["complete", "complete, then fail"])
    def test_a_completed_message_is_gone_whatever_follows(
        self, app: ToyApp, bus: Broker, send: Send, body: str
    ) -> None:
        before = bus.counts("manual")
        send("manual", ServiceBusMessage(body))

        eventually(lambda: bus.counts("manual").completed == before.completed + 1)
        assert len(seen(app, "manual", body)) == 1
        assert bus.counts("manual").abandoned == before.abandoned

    def test_a_deferred_message_waits_for_whoever_asks_for_it(
        self, bus: Broker, send: Send
    ) -> None:
        send("manual", ServiceBusMessage("defer"))
        eventually(lambda: bus.counts("manual").deferred == 1)

    def test_without_settlement_the_message_comes_back_only_when_its_lock_ends(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        before = bus.counts("manual")
        send("manual", ServiceBusMessage("settle late"))
        eventually(lambda: len(seen(app, "manual", "settle late")) >= 2)

        (first, began), (second, came_back) = seen(app, "manual", "settle late")[:2]
        assert (first, second) == (1, 2)
        assert came_back - began > BRIEF.total_seconds() * 0.8
        assert bus.counts("manual").abandoned == before.abandoned
        assert bus.counts("manual").released == before.released
        assert bus.counts("manual").locks_expired > before.locks_expired

    def test_after_its_invocation_a_message_cannot_be_settled(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("manual", ServiceBusMessage("settle late"))
        [answer] = eventually(lambda: app.effects("late"))[0]
        assert "not found" in answer


@pytest.mark.usefixtures("host")
class TestBatchesAndSessions:
    def test_a_batch_is_one_call_and_all_of_it_is_completed(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("batched", *(ServiceBusMessage(f"b{n}", message_id=f"m{n}") for n in range(5)))

        eventually(lambda: bus.counts("batched").completed == 5)
        batches = [batch for [batch] in app.effects("batched")]
        assert list(itertools.chain.from_iterable(batches)) == [
            [f"b{n}", f"m{n}", 1] for n in range(5)
        ]
        assert len(batches) < 5

    def test_a_batch_without_a_data_type_is_written_anew_as_json(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        send("untyped", ServiceBusMessage('{"a":1}'))
        eventually(lambda: bus.counts("untyped").completed == 1)
        assert app.effects("untyped") == [[['{"a": 1}']]]

    def test_and_one_body_that_is_no_json_gives_all_of_it_back_unseen(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        before = len(app.effects("untyped"))
        send("untyped", ServiceBusMessage("{"))
        eventually(lambda: bus.counts("untyped").dead == 1)
        assert bus.counts("untyped").abandoned >= 10
        assert len(app.effects("untyped")) == before

    def test_a_session_s_messages_are_handled_in_order_one_at_a_time(
        self, app: ToyApp, bus: Broker, send: Send
    ) -> None:
        sessions = ["a", "b", "c"]
        send(
            "sessions",
            *(ServiceBusMessage(str(n), session_id=s) for n in range(4) for s in sessions),
        )

        eventually(lambda: bus.counts("sessions").completed == 12, within=20)
        for session in sessions:
            assert seen(app, "session", session) == [
                [n, step] for n in range(4) for step in ("begun", "ended")
            ]


@pytest.mark.usefixtures("host")
class TestTrouble:
    def test_a_restart_of_the_broker_is_survived(self, app: ToyApp, bus: Broker) -> None:
        before = bus.counts("plain").completed
        bus.restart(downtime=0.5)
        with sending(bus) as send:
            send("plain", ServiceBusMessage("after the restart"))

        eventually(lambda: bus.counts("plain").completed == before + 1, within=15)
        assert seen(app, "plain", b"after the restart".hex())

    def test_connections_that_drop_while_a_message_is_handled_lose_nothing(
        self, app: ToyApp, bus: Broker
    ) -> None:
        before = bus.counts("plain").completed
        with sending(bus) as send:
            send("plain", ServiceBusMessage("slow 1.5"))
        eventually(lambda: seen(app, "plain", b"slow 1.5".hex()))

        bus.drop_connections()

        eventually(lambda: bus.counts("plain").completed == before + 1, within=15)
        assert len(seen(app, "plain", b"slow 1.5".hex())) == 1


def test_asked_to_end_it_finishes_and_completes_what_it_has_begun(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    app = ToyApp(tmp_path_factory.mktemp("app"), FUNCTIONS, serviceBus=SETTINGS)
    with Broker(ENTITIES, port=0) as broker:
        with HostProcess(app.folder, environment=environment(broker), port=None) as host:
            pid = host.pid
            with sending(broker) as send:
                send("plain", ServiceBusMessage("slow 1"))
            eventually(lambda: app.effects("plain"))
            host.signal(signal.SIGTERM)
            eventually(lambda: host.exit_code is not None)
            assert host.exit_code == 0
        assert app.effects("slow ended") == [[]]
        assert broker.counts("plain").completed == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
