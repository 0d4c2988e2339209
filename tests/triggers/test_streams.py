"""Event Hubs, Kafka and RabbitMQ in the worker that Azure runs, with batches as the host hands them over."""

import base64
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.host.invoker import ROOT, Invoker

APP = f"""
import asyncio, json, pathlib, sys
sys.path.insert(1, {str(ROOT)!r})
import azure.functions as func
from shared.idempotency import Consumer, PermanentFailure, StoreUnavailable, TransientFailure
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import event_hubs, kafka, rabbitmq, stream
from shared.idempotency.triggers.body_keys import json_key
from shared.idempotency.triggers.pacing import Pacing

app = func.FunctionApp()
HERE = pathlib.Path(__file__).parent

def note(file, *what):
    with (HERE / file).open("a") as log:
        log.write(json.dumps(what) + "\\n")

class Store(MemoryStore):
    name = "counting"

    def _asked(self, what):
        note("trips.log", what)
        if (HERE / "store is down").exists():
            raise StoreUnavailable("the store is down")

    async def read(self, consumer, key):
        self._asked("read")
        return await super().read(consumer, key)

    async def insert(self, record):
        self._asked("insert")
        return await super().insert(record)

    async def replace(self, record, etag):
        self._asked("replace")
        return await super().replace(record, etag)

async def set_aside(event, reason, description):
    if (HERE / "queue is down").exists():
        raise TransientFailure("the queue is down")
    note("aside.log", getattr(event, "position", None), reason)

def handle(body):
    content = json.loads(body)
    match content.get("do"):
        case "refuse": raise PermanentFailure("OutOfStock", "none left")
        case "not now" if (HERE / "provider is down").exists():
            raise TransientFailure("the provider is down")
        case "crash": raise LookupError("no such customer")
    note("effects.log", content.get("id"), content.get("n"))

def event_hub(name):
    return app.event_hub_message_trigger(
        arg_name="events", connection="C", event_hub_name=name, cardinality="many",
        data_type="binary",
    )

store = Store()

@event_hub("in_body")
@event_hubs.idempotent(
    Consumer("in_body", store), key=stream.in_body(json_key("id")), set_aside=set_aside, tries=3
)
async def in_body(event: stream.StreamEvent) -> None:
    if b"slow" in event.body:
        await asyncio.sleep(0.01)  # others get their turn meanwhile
    handle(event.body)

@event_hub("in_property")
@event_hubs.idempotent(
    Consumer("in_property", store), key=stream.in_property("event-id"), set_aside=set_aside
)
async def in_property(event: stream.StreamEvent) -> None:
    handle(event.body)

@event_hub("by_position")
@event_hubs.idempotent(
    Consumer("by_position", store), key=stream.by_position, set_aside=set_aside
)
def by_position(event: stream.StreamEvent) -> None:
    handle(event.body)

@app.kafka_trigger(arg_name="events", topic="t", broker_list="B", cardinality="many", data_type="binary")
@kafka.idempotent(Consumer("kafka", store), key=stream.in_line, set_aside=set_aside)
async def from_kafka(event: stream.StreamEvent) -> None:
    handle(event.body)

@app.kafka_trigger(arg_name="events", topic="t", broker_list="B", cardinality="many", data_type="binary")
@kafka.idempotent(
    Consumer("kafka_headers", store), key=stream.in_property("id"), set_aside=set_aside
)
async def from_kafka_by_header(event: stream.StreamEvent) -> None:
    handle(event.body)

@app.generic_trigger(
    arg_name="message", type="rabbitMQTrigger", queueName="q", connectionStringSetting="C",
    data_type="binary",
)
@rabbitmq.idempotent(
    Consumer("rabbitmq", store),
    key=json_key("id"), set_aside=set_aside, pacing=Pacing(first=0.01, longest=0.01),
)
async def from_rabbitmq(message: bytes) -> None:
    handle(message)
"""


class Toy:
    """The app on disk, its worker, and what its functions have written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "function_app.py").write_text(textwrap.dedent(APP))
        (folder / "host.json").write_text('{"version": "2.0"}')
        self.invoke: Invoker

    def hand(self, function: str, *events: dict[str, Any], **how: Any) -> bool:
        """Whether a batch succeeds; an event is its body, and what begins with an underscore beside it."""
        batch = []
        for event in events:
            body = {name: value for name, value in event.items() if not name.startswith("_")}
            beside = {name[1:]: value for name, value in event.items() if name.startswith("_")}
            batch.append({"body": event.get("_body", json.dumps(body)), **beside})
        answer = self.invoke(function, events=batch, **how)
        return bool(answer["succeeded"])

    def noted(self, what: str) -> list[Any]:
        log = self.folder / f"{what}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    @property
    def effects(self) -> list[Any]:
        """The ids of what had its effect since the last look."""
        return [id_ for id_, _ in self.noted("effects")]

    def switch(self, what: str, *, on: bool) -> None:
        (self.folder / what).touch() if on else (self.folder / what).unlink()


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    toy = Toy(tmp_path)
    with Invoker(toy.folder) as toy.invoke:
        yield toy


def test_given_an_old_checkpoint_then_what_is_read_again_is_absorbed(toy: Toy) -> None:
    batch = [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    assert toy.hand("in_body", *batch)
    assert toy.hand("in_body", *batch[1:], {"id": "4"}, first=2)
    assert toy.effects == ["1", "2", "3", "4"]


def test_given_a_poison_event_then_it_is_set_aside_and_the_partition_goes_on(toy: Toy) -> None:
    toy.hand("in_body", {"id": "0", "n": 1})
    bad: list[dict[str, Any]] = [
        {"_body": "{no json"},
        {"no": "key"},
        {"id": "0", "n": 2},
        {"id": "r", "do": "refuse"},
    ]
    assert toy.hand("in_body", {"id": "1"}, *bad, {"id": "2"}, first=10)
    assert toy.effects == ["0", "1", "2"]
    assert toy.noted("aside") == [
        ["order-events/0/11", "MalformedJson"],
        ["order-events/0/12", "MissingKey"],
        ["order-events/0/13", "PayloadMismatch"],
        ["order-events/0/14", "OutOfStock"],
    ]


def test_given_one_that_must_come_again_then_the_batch_is_raised_and_nothing_overtakes_in_its_line(
    toy: Toy,
) -> None:
    toy.switch("provider is down", on=True)
    batch = [
        {"id": "a1", "_partition_key": "a"},
        {"id": "a2", "_partition_key": "a", "do": "not now"},
        {"id": "b1", "_partition_key": "b"},
        {"id": "a3", "_partition_key": "a"},
    ]
    assert not toy.hand("in_body", *batch)
    assert sorted(toy.effects) == ["a1", "b1"]

    toy.switch("provider is down", on=False)
    assert toy.hand("in_body", *batch, retry_count=1)
    assert toy.effects == ["a2", "a3"]
    assert toy.noted("aside") == []


def test_given_a_store_that_is_down_then_nothing_runs_and_nothing_is_passed_over(toy: Toy) -> None:
    toy.switch("store is down", on=True)
    batch = [{"id": str(number)} for number in range(20)]
    for count in range(6):  # more often than a failing handler would be tried
        assert not toy.hand("in_body", *batch, retry_count=count)
    assert (toy.effects, toy.noted("aside")) == ([], [])

    toy.switch("store is down", on=False)
    assert toy.hand("in_body", *batch, retry_count=6)
    assert sorted(toy.effects, key=int) == [str(number) for number in range(20)]


def test_given_a_handler_that_fails_for_no_known_reason_then_it_is_tried_and_then_set_aside(
    toy: Toy,
) -> None:
    batch = [{"id": "1"}, {"id": "x", "do": "crash"}, {"id": "2"}]
    assert not toy.hand("in_body", *batch)
    assert not toy.hand("in_body", *batch, retry_count=1)
    assert toy.effects == ["1"]
    assert toy.hand("in_body", *batch, retry_count=2)
    assert toy.effects == ["2"]
    assert toy.noted("aside") == [["order-events/0/2", "HandlerFailed"]]


def test_given_no_place_to_set_it_aside_then_it_is_not_passed_over(toy: Toy) -> None:
    toy.switch("queue is down", on=True)
    batch = [{"_body": "{no json"}, {"id": "1"}]
    assert not toy.hand("in_body", *batch)
    assert toy.effects == []
    toy.switch("queue is down", on=False)
    assert toy.hand("in_body", *batch, retry_count=1)
    assert toy.effects == ["1"]

    toy.switch("queue is down", on=True)
    crashing = [{"id": "x", "do": "crash"}, {"id": "2"}]
    assert not toy.hand("in_body", *crashing, retry_count=9)
    assert toy.effects == []
    toy.switch("queue is down", on=False)
    assert toy.hand("in_body", *crashing, retry_count=10)
    assert toy.effects == ["2"]


def test_trips_of_a_batch_are_those_of_its_events_and_none_for_what_was_just_done(toy: Toy) -> None:
    batch = [{"id": str(number), "_partition_key": str(number)} for number in range(10)]
    assert toy.hand("in_body", *batch)
    assert len(toy.noted("trips")) == 20
    assert toy.hand("in_body", *batch)
    assert toy.noted("trips") == []


def test_each_event_s_properties_are_its_own_though_the_metadata_is_the_batch_s(toy: Toy) -> None:
    batch = [{"id": str(number), "_properties": {"event-id": f"p{number}"}} for number in range(3)]
    assert toy.hand("in_property", *batch, {"id": "none"})
    assert toy.hand("in_property", {"id": "0", "_properties": {"event-id": "p0"}}, first=9)
    assert toy.effects == ["0", "1", "2"]
    assert toy.noted("aside") == [["order-events/0/4", "MissingKey"]]


def test_given_bodies_that_are_empty_or_no_text_then_they_are_set_aside_and_the_others_are_not_changed(
    toy: Toy,
) -> None:
    no_text = {"base64": base64.b64encode(b'{"id": "caf\xe9"}').decode()}
    assert toy.hand("in_body", {"id": "1"}, {"_body": ""}, {"_body": no_text}, {"id": "2"})
    assert toy.effects == ["1", "2"]
    assert toy.noted("aside") == [
        ["order-events/0/2", "EmptyBody"],
        ["order-events/0/3", "MalformedJson"],
    ]

    assert toy.hand("from_kafka_by_header", {"_body": "", "_headers": {"id": "h"}})
    assert toy.effects == []
    assert not toy.invoke("from_rabbitmq", body=b"caf\xe9")["settlements"]
    assert toy.noted("aside")[-1] == [None, "MalformedJson"]


def test_by_position_an_event_read_again_is_absorbed_and_one_sent_again_is_not(toy: Toy) -> None:
    assert toy.hand("by_position", {"id": "1"})
    assert toy.hand("by_position", {"id": "1"})
    assert toy.effects == ["1"]
    assert toy.hand("by_position", {"id": "1"}, first=2)
    assert toy.hand("by_position", {"id": "1"}, partition="1")
    assert toy.hand("by_position", {"id": "1"}, hub="another")
    assert toy.effects == ["1", "1", "1"]


def test_given_no_partition_then_there_is_no_position_and_nothing_runs(toy: Toy) -> None:
    """Events of two partitions would have one key: the second would be taken for a duplicate."""
    assert toy.hand("by_position", {"id": "1"}, partition=None)
    assert toy.effects == []
    assert toy.noted("aside") == [[None, "MissingKey"]]


def test_given_two_producers_copies_in_one_batch_then_one_is_handled_and_the_batch_is_done(
    toy: Toy,
) -> None:
    copies = [{"id": "1", "slow": True, "_partition_key": str(number)} for number in range(4)]
    assert toy.hand("in_body", *copies)
    assert toy.effects == ["1"]


def test_given_other_correlation_ids_then_neither_tells_events_apart_nor_together(toy: Toy) -> None:
    told: list[tuple[object, str]] = [("1", "a"), ("1", "b"), (2, "a")]
    batch = [
        {"id": str(id_), "_properties": {"event-id": id_, "CorrelationId": correlation}}
        for id_, correlation in told
    ]
    assert toy.hand("in_property", *batch)
    assert toy.effects == ["1", "2"]
    assert toy.noted("aside") == []


def test_kafka_s_records_have_keys_and_headers_of_their_own(toy: Toy) -> None:
    records = [{"id": "1", "_key": "k-1"}, {"id": "2", "_key": "k-2"}, {"id": "1", "_key": "k-1"}]
    assert toy.hand("from_kafka", *records)
    assert toy.hand("from_kafka", *records, first=3)
    assert sorted(toy.effects) == ["1", "2"]

    headers = [{"id": str(number), "_headers": {"id": f"h{number}"}} for number in range(2)]
    assert toy.hand("from_kafka_by_header", *headers, {"id": "no header"})
    assert toy.hand("from_kafka_by_header", *headers, first=3)
    assert toy.effects == ["0", "1"]
    assert toy.noted("aside") == [["order-events/0/2", "MissingKey"]]


def test_rabbitmq_s_body_is_all_there_is(toy: Toy) -> None:
    def hand(body: str) -> bool:
        return bool(toy.invoke("from_rabbitmq", body=body)["succeeded"])

    assert hand('{"id": "1"}')
    assert hand('{"id": "1"}')
    assert hand("{no json")
    assert hand('{"id": "1", "n": 2}')
    toy.switch("provider is down", on=True)
    assert not hand('{"id": "2", "do": "not now"}')
    toy.switch("provider is down", on=False)
    assert hand('{"id": "2", "do": "not now"}')
    assert toy.effects == ["1", "2"]
    assert toy.noted("aside") == [[None, "MalformedJson"], [None, "PayloadMismatch"]]
