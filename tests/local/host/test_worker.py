"""The real worker with toy apps, each in a process of its own, without any service."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from local.host.invoker import AppNotLoaded, Invoker
from tests.local.host.toy_app import ToyApp

FUNCTIONS = """
@app.route(route="orders/{id}", methods=["POST"])
def submit(req: func.HttpRequest) -> func.HttpResponse:
    effect("http", req.method, req.url, req.headers["x-key"], dict(req.params),
           dict(req.route_params), req.get_body().decode())
    return func.HttpResponse("made", status_code=202, headers={"Location": "/7"})

@app.service_bus_queue_trigger(arg_name="message", queue_name="q", connection="C",
                               auto_complete_messages=False)
async def settle(message: func.ServiceBusMessage, actions: ServiceBusMessageActions) -> None:
    body = message.get_body()
    effect("message", body.hex(), message.message_id, message.delivery_count, message.session_id,
           message.application_properties, message.enqueued_time_utc.isoformat(),
           message.content_type, message.correlation_id, message.subject, message.lock_token)
    if body == b"reject":
        await asyncio.to_thread(actions.deadletter, message, "Bad", "very bad")
    if body == b"twice":
        await asyncio.to_thread(actions.complete, message)
        await asyncio.to_thread(actions.abandon, message)
    if body == b"on the loop":
        actions.complete(message)

@app.service_bus_queue_trigger(arg_name="message", queue_name="q", connection="C")
async def traced(message: func.ServiceBusMessage, context: func.Context) -> None:
    effect("trace", context.trace_context.trace_parent)

@app.service_bus_queue_trigger(arg_name="messages", queue_name="q", connection="C",
                               cardinality="many")
async def batch(messages: __import__("typing").List[func.ServiceBusMessage]) -> None:
    effect("batch", [[m.get_body().decode(), m.message_id, m.delivery_count] for m in messages])

@app.event_grid_trigger(arg_name="event")
def event(event: func.EventGridEvent) -> None:
    effect("event", event.id, event.get_json())

@app.queue_trigger(arg_name="message", queue_name="q", connection="C")
def queued(message: func.QueueMessage) -> None:
    effect("queue", message.get_body().decode(), message.id, message.dequeue_count,
           message.insertion_time.isoformat())

@app.timer_trigger(arg_name="timer", schedule="0 0 2 * * *")
def nightly(timer: func.TimerRequest) -> None:
    effect("timer", timer.past_due, timer.schedule_status["Next"])
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> ToyApp:
    return ToyApp(tmp_path_factory.mktemp("app"), FUNCTIONS)


@pytest.fixture(scope="module")
def invoke(app: ToyApp) -> Iterator[Invoker]:
    with Invoker(app.folder) as invoker:
        yield invoker


def test_every_function_is_listed_with_its_trigger(invoke: Invoker) -> None:
    assert invoke.functions == {
        "submit": "httpTrigger",
        "settle": "serviceBusTrigger",
        "traced": "serviceBusTrigger",
        "batch": "serviceBusTrigger",
        "event": "eventGridTrigger",
        "queued": "queueTrigger",
        "nightly": "timerTrigger",
    }


def test_an_http_function_gets_the_request_and_its_answer_comes_back(
    app: ToyApp, invoke: Invoker
) -> None:
    answer = invoke(
        "submit",
        method="POST",
        url="http://localhost/api/orders/7?dry=1",
        headers={"X-Key": "k"},
        params={"id": "7"},
        body="{}",
    )

    assert answer["response"]["status"] == 202
    assert answer["response"]["body"] == "made"
    assert answer["response"]["headers"]["Location"] == "/7"
    assert app.effects("http")[-1] == [
        "POST", "http://localhost/api/orders/7?dry=1", "k", {"dry": "1"}, {"id": "7"}, "{}",
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"{}", "Grüße".encode(), b"\xff\x00\xfe", b"\xef\xbb\xbfx"])
def test_any_bytes_reach_the_function_unchanged(app: ToyApp, invoke: Invoker, body: bytes) -> None:
    assert invoke("settle", body=body)["succeeded"]
    assert app.effects("message")[-1][0] == body.hex()


def test_a_message_has_all_that_the_broker_knows_of_it(app: ToyApp, invoke: Invoker) -> None:
    enqueued = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

    invoke(
        "settle",
        body="x",
        message_id="m-1",
        delivery_count=3,
        session_id="s",
        application_properties={"Deduplication-Key": "k"},
        enqueued_time=enqueued,
        content_type="application/json",
        correlation_id="c",
        subject="order",
        lock_token="token",
    )

    assert app.effects("message")[-1][1:] == [
        "m-1", 3, "s", {"Deduplication-Key": "k"}, enqueued.isoformat(),
        "application/json", "c", "order", "token",
    ]  # fmt: skip


def test_a_message_without_an_id_has_none(app: ToyApp, invoke: Invoker) -> None:
    assert invoke("settle", body="x")["succeeded"]
    assert app.effects("message")[-1][1] is None


def test_settlement_actions_go_through_the_real_client(invoke: Invoker) -> None:
    answer = invoke("settle", body="reject")
    assert answer["succeeded"]
    assert answer["settlements"] == [["deadletter", "Bad", "very bad"]]


def test_a_message_that_is_settled_cannot_be_settled_again(invoke: Invoker) -> None:
    answer = invoke("settle", body="twice")
    assert not answer["succeeded"]
    assert "SettlementError" in answer["exception"]
    assert "not found" in answer["exception"]
    assert answer["settlements"] == [["complete"]]


def test_settling_on_the_worker_s_own_loop_blocks_but_ends(invoke: Invoker) -> None:
    assert invoke("settle", body="on the loop")["settlements"] == [["complete"]]


def test_without_a_trace_context_a_new_trace_begins(app: ToyApp, invoke: Invoker) -> None:
    invoke("traced", body="x")
    invoke("traced", body="x")
    first, second = app.effects("trace")
    assert first != second
    assert [len(part) for part in first[0].split("-")] == [2, 32, 16, 2]


def test_queue_and_timer_functions_get_their_metadata(app: ToyApp, invoke: Invoker) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)

    assert invoke("queued", body="b", message_id="i", dequeue_count=2, insertion_time=moment)[
        "succeeded"
    ]
    assert invoke("nightly", past_due=True, next_time=moment)["succeeded"]

    assert app.effects("queue") == [["b", "i", 2, "2026-03-01T12:00:00+00:00"]]
    assert app.effects("timer") == [[True, "2026-03-01T12:00:00.000000Z"]]


def test_in_a_batch_the_ids_shift_when_one_is_missing_as_they_do_in_azure(
    app: ToyApp, invoke: Invoker
) -> None:
    messages = [{"body": "b0"}, {"body": "b1", "message_id": "m1", "delivery_count": 2}]

    assert invoke("batch", messages=messages)["succeeded"]

    assert app.effects("batch") == [[[["b0", "m1", 1], ["b1", None, 2]]]]


def test_in_a_batch_of_texts_an_empty_body_fails_all_of_it_as_it_does_in_azure(
    app: ToyApp, invoke: Invoker
) -> None:
    """There is a body less than there are messages; the worker's library does not get to the app."""
    before = len(app.effects("batch"))
    answer = invoke("batch", messages=[{"body": "b0"}, {"body": ""}, {"body": "b2"}])
    assert not answer["succeeded"]
    assert "IndexError" in answer["exception"] or "out of range" in answer["exception"]
    assert len(app.effects("batch")) == before


def test_any_other_trigger_takes_data_in_the_worker_s_own_form(
    app: ToyApp, invoke: Invoker
) -> None:
    event = {
        "id": "e-1", "topic": "t", "subject": "s", "eventType": "Made", "data": {"n": 1},
        "eventTime": "2026-03-01T12:00:00Z", "dataVersion": "1",
    }  # fmt: skip

    assert invoke.raw("event", {"json": json.dumps(event)})["succeeded"]

    assert app.effects("event") == [["e-1", {"n": 1}]]


def test_an_app_that_does_not_load_says_why_in_the_worker_s_words(tmp_path: Path) -> None:
    source = """
        @app.queue_trigger(arg_name="message", queue_name="q", connection="C")
        def queued(message: func.QueueMessage, extra: str) -> None: ...
    """
    broken = ToyApp(tmp_path, source)
    with (
        pytest.raises(AppNotLoaded, match=r"cannot load the queued function.*extra"),
        Invoker(broken.folder),
    ):
        pytest.fail("it loaded")
