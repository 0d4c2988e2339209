"""The decorators in the worker that Azure runs: toy apps in a process of their own, no service."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.host.invoker import ROOT, AppNotLoaded, Invoker

PREAMBLE = f"""
import json, logging, pathlib, sys
sys.path.insert(1, {str(ROOT)!r})
import azure.functions as func
from shared.idempotency import Consumer, Inbox, PermanentFailure, current_attempt
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.telemetry import Logs, Metrics
from shared.idempotency.triggers import http, service_bus, storage_queue
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement
from shared.idempotency.triggers.pacing import Pacing

app = func.FunctionApp()
store = MemoryStore()
EFFECTS = pathlib.Path(__file__).with_name("effects.log")

def effect(*what):
    with EFFECTS.open("a") as log:
        log.write(json.dumps(what) + "\\n")

async def set_aside(message, reason, description):
    effect("set aside", reason)

def over_service_bus(name):
    return service_bus.idempotent(
        Consumer(name, store), settlement=BindingSettlement(), pacing=Pacing(first=0.01)
    )

def over_queue(name):
    return storage_queue.idempotent(
        Consumer(name, store),
        key=storage_queue.json_key("order_id"),
        poison_queue=set_aside,
        pacing=Pacing(first=0.01),
    )

def service_bus_trigger(auto_complete=False):
    return app.service_bus_queue_trigger(
        arg_name="message", queue_name="q", connection="C", auto_complete_messages=auto_complete
    )

queue_trigger = app.queue_trigger(arg_name="message", queue_name="q", connection="C")
"""

FUNCTIONS = """
@service_bus_trigger()
@over_service_bus("asynchronous")
async def asynchronous(message: func.ServiceBusMessage) -> dict[str, str]:
    if message.get_body() == b'"refuse"':
        raise PermanentFailure("OutOfStock", "there is no more of it")
    if message.get_body() == b'"crash"':
        raise LookupError("no such customer")
    effect("asynchronous", current_attempt().key)
    return {"a": "result"}

@service_bus_trigger()
@over_service_bus("synchronous")
def synchronous(message: func.ServiceBusMessage, context: func.Context) -> None:
    effect("synchronous", context.function_name, current_attempt().key)

@service_bus_trigger(auto_complete=True)
@service_bus.idempotent(
    Consumer("fallback", store), settlement=QuarantineSettlement(set_aside)
)
async def fallback(message: func.ServiceBusMessage) -> None:
    effect("fallback", message.message_id)

@queue_trigger
@over_queue("queued")
async def queued(message: func.QueueMessage) -> dict[str, int]:
    effect("queued", message.get_body().decode())
    return {"not": 1}

@app.route(route="orders", methods=["POST"])
@http.idempotent(Consumer("submit", store))
async def submit(req: func.HttpRequest) -> func.HttpResponse:
    effect("submit", req.get_body().decode())
    return func.HttpResponse(
        '{"made": "\u00fc"}', status_code=201, mimetype="application/json",
        headers={"Location": "/api/orders/7", "Set-Cookie": "session=1"},
    )
"""


class App:
    """A toy app on disk, and what its functions have written down."""

    def __init__(self, folder: Path, functions: str) -> None:
        self.folder = folder
        (folder / "function_app.py").write_text(PREAMBLE + textwrap.dedent(functions))
        (folder / "host.json").write_text('{"version": "2.0"}')

    def effects(self, name: str) -> list[list[Any]]:
        log = self.folder / "effects.log"
        lines = log.read_text().splitlines() if log.exists() else []
        effects = [json.loads(line) for line in lines]
        return [effect[1:] for effect in effects if effect[0] == name]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    return App(tmp_path_factory.mktemp("app"), FUNCTIONS)


@pytest.fixture(scope="module")
def invoke(app: App) -> Iterator[Invoker]:
    with Invoker(app.folder) as invoker:
        yield invoker


def test_every_protected_function_is_indexed(invoke: Invoker) -> None:
    assert invoke.functions == {
        "asynchronous": "serviceBusTrigger",
        "synchronous": "serviceBusTrigger",
        "fallback": "serviceBusTrigger",
        "queued": "queueTrigger",
        "submit": "httpTrigger",
    }


def test_the_worker_hands_over_its_settlement_client_and_the_duplicate_is_completed(
    app: App, invoke: Invoker
) -> None:
    answers = [
        invoke("asynchronous", body="{}", message_id="o-1", delivery_count=n) for n in (1, 2)
    ]
    assert [a["succeeded"] for a in answers] == [True, True], answers
    assert [a["settlements"] for a in answers] == [[["complete"]], [["complete"]]]
    assert app.effects("asynchronous") == [["o-1"]]


def test_a_mismatch_a_missing_key_and_a_failure_are_dead_lettered_with_their_reasons(
    invoke: Invoker,
) -> None:
    invoke("asynchronous", body="1", message_id="o-2")
    mismatch = invoke("asynchronous", body="2", message_id="o-2")
    missing = invoke("asynchronous", body="{}")
    failed = [invoke("asynchronous", body='"refuse"', message_id="o-3") for _ in range(2)]

    reasons = [a["settlements"][0][:2] for a in (mismatch, missing, *failed)]
    assert reasons == [
        ["deadletter", "PayloadMismatch"],
        ["deadletter", "MissingKey"],
        ["deadletter", "OutOfStock"],
        ["deadletter", "OutOfStock"],
    ]
    assert failed[0]["settlements"] == failed[1]["settlements"]


def test_an_exception_reaches_the_host_and_nothing_is_settled(invoke: Invoker) -> None:
    answer = invoke("asynchronous", body='"crash"', message_id="o-4")
    assert not answer["succeeded"]
    assert "no such customer" in answer["exception"]
    assert answer["settlements"] == []


def test_a_synchronous_handler_gets_the_context_and_its_attempt(app: App, invoke: Invoker) -> None:
    for _ in range(2):
        answer = invoke("synchronous", body="{}", message_id="o-1")
        assert answer["settlements"] == [["complete"]], answer
    assert app.effects("synchronous") == [["synchronous", "o-1"]]


def test_without_the_binding_the_host_completes_and_the_quarantine_gets_the_copy(
    app: App, invoke: Invoker
) -> None:
    bodies = ["1", "1", "2"]
    answers = [invoke("fallback", body=body, message_id="o-1") for body in bodies]
    assert all(a["succeeded"] and a["settlements"] == [] for a in answers), answers
    assert app.effects("fallback") == [["o-1"]]
    assert app.effects("set aside") == [["PayloadMismatch"]]


def test_a_queue_function_gives_the_host_nothing_back(app: App, invoke: Invoker) -> None:
    body = '{"order_id": "o-1"}'
    for count in (1, 2):
        answer = invoke("queued", body=body, dequeue_count=count)
        assert answer["succeeded"], answer
        assert answer["response"] is None
    assert app.effects("queued") == [[body]]


def test_an_http_request_is_answered_once_by_the_handler_and_then_from_the_record(
    app: App, invoke: Invoker
) -> None:
    first, replay = (
        invoke(
            "submit",
            method="POST",
            url="http://localhost/api/orders",
            headers={"Idempotency-Key": key},
            body='{"quantity": 1}',
        )["response"]
        for key in ("k-1", '"k-1"')
    )
    assert app.effects("submit") == [['{"quantity": 1}']]
    assert (first["status"], first["body"]) == (201, '{"made": "ü"}')
    assert replay["headers"].pop("Idempotent-Replayed") == "true"
    assert replay == first

    refused = invoke("submit", method="POST", url="http://localhost/api/orders", body="{}")
    assert refused["response"]["status"] == 400
    assert refused["response"]["headers"]["content-type"] == "application/problem+json"


def test_decorators_the_wrong_way_round_stop_the_app_with_a_message_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    broken = App(
        tmp_path,
        """
        @over_queue("queued")
        @queue_trigger
        async def queued(message: func.QueueMessage) -> None: ...
        """,
    )
    with (
        pytest.raises(AppNotLoaded, match="Put it directly above `def`, below every @app"),
        Invoker(broken.folder),
    ):
        pytest.fail("it loaded")


def test_a_returned_value_as_output_binding_stops_the_app(tmp_path: Path) -> None:
    broken = App(
        tmp_path,
        """
        @queue_trigger
        @app.queue_output(arg_name="$return", queue_name="out", connection="C")
        @over_queue("queued")
        async def queued(message: func.QueueMessage) -> str:
            return "never emitted for a duplicate"
        """,
    )
    with (
        pytest.raises(AppNotLoaded, match="cannot load the queued function"),
        Invoker(broken.folder),
    ):
        pytest.fail("it loaded")
