"""CloudEvents over HTTP: the same event in any mode; several events, each with its own outcome."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from azure.functions import HttpRequest, HttpResponse
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    ConfigurationError,
    MalformedContent,
    PermanentFailure,
    Protected,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import cloud_events
from shared.idempotency.triggers.cloud_event import delivery_of
from shared.idempotency.triggers.cloud_events import CloudEvent
from tests.triggers.doubles import DownStore, consumer_over
from tests.triggers.http_route import PATIENT, problem_of

URL = "https://shop.example/api/order-status"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


def an_event(id_: str = "e-1", **changes: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": id_,
        "source": "/shipping",
        "type": "shop.shipped",
        "subject": "ord-1",
        "time": "2024-05-01T12:00:00.5Z",
        "data": {"status": "shipped", "price": 1.10},
        **changes,
    }


def post(content: Any, content_type: str | None = STRUCTURED, **headers: str) -> HttpRequest:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type is not None:
        sent["Content-Type"] = content_type
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpRequest("POST", URL, headers=sent, body=body)


def binary(body: bytes = b'{"price": 1.1, "status": "shipped"}', **changes: str) -> HttpRequest:
    """The event of an_event() in binary mode."""
    headers = {
        "ce_specversion": "1.0",
        "ce_id": "e-1",
        "ce_source": "/shipping",
        "ce_type": "shop.shipped",
        "ce_subject": "ord-1",
        "ce_time": "2024-05-01T12:00:00.5Z",
        **changes,
    }
    return post(body, headers.pop("content_type", "application/json"), **headers)


def in_event_grid_schema(id_: str = "e-1", **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "topic": "/shipping",
        "eventType": "shop.shipped",
        "subject": "ord-1",
        "eventTime": "2024-05-01T12:00:00.5Z",
        "dataVersion": "1",
        "data": {"status": "shipped", "price": 1.10},
        **changes,
    }


def notification(*events: Any) -> HttpRequest:
    return post(list(events), "application/json; charset=utf-8", aeg_event_type="Notification")


class Receiver:
    """A protected route; ``handled`` are the events that ran, ``does`` says how those of an id end."""

    def __init__(self, consumer: Protected | None = None, **options: Any) -> None:
        self.handled: list[CloudEvent] = []
        self.does: dict[str, Callable[[], None]] = {}
        self.store = MemoryStore()

        async def received(event: CloudEvent) -> None:
            self.handled.append(event)
            await asyncio.sleep(0)
            self.does.get(event.id, lambda: None)()

        protected = consumer or consumer_over(self.store, PATIENT)
        self.function = cloud_events.idempotent(protected, **options)(received)

    async def __call__(self, asked: HttpRequest) -> HttpResponse:
        answer = await self.function(asked)
        assert isinstance(answer, HttpResponse)
        return answer


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


# One event


async def test_an_event_is_handled_once_whichever_mode_brings_it(receiver: Receiver) -> None:
    requests = [
        post(an_event()),
        post(an_event(), f"{STRUCTURED}; charset=UTF-8"),
        binary(),
        post([an_event()], BATCH),
        post([an_event(), an_event()], BATCH),
        notification(in_event_grid_schema()),
    ]
    answers = [await receiver(asked) for asked in requests]
    assert [a.status_code for a in answers] == [204, 204, 204, 200, 200, 200]
    assert len(receiver.handled) == 1


@pytest.mark.parametrize(
    "asked", [post(an_event()), binary(), notification(in_event_grid_schema())],
    ids=["structured", "binary", "Event Grid's schema"],
)  # fmt: skip
async def test_every_mode_hands_over_the_same_event(receiver: Receiver, asked: HttpRequest) -> None:
    await receiver(asked)
    [event] = receiver.handled
    assert (event.source, event.id, event.type, event.subject) == (
        "/shipping", "e-1", "shop.shipped", "ord-1",
    )  # fmt: skip
    assert event.time is not None
    assert event.time.isoformat() == "2024-05-01T12:00:00.500000+00:00"
    assert json.loads(event.data) == {"status": "shipped", "price": 1.10}
    assert "1.1" in event.data.decode(), "a number is as it was sent"
    assert "shipped" not in repr(event).replace("shop.shipped", "")


async def test_source_and_id_are_the_key_and_are_not_confused(receiver: Receiver) -> None:
    for source, id_ in (("a", "b1"), ("ab", "1"), ("a1:b", "1"), ("a", "1:b1")):
        assert (await receiver(post(an_event(id_, source=source)))).status_code == 204
    assert len(receiver.handled) == 4


@pytest.mark.parametrize(
    "changes", [{"data": {"status": "lost"}}, {"type": "shop.lost"}, {"subject": "ord-2"}]
)
async def test_an_id_with_other_content_is_refused(
    receiver: Receiver, changes: dict[str, Any]
) -> None:
    await receiver(post(an_event()))
    assert problem_of(await receiver(post(an_event(**changes)))) == (422, "event-changed")
    assert len(receiver.handled) == 1


async def test_extensions_are_handed_over_and_a_trace_is_kept(receiver: Receiver) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    await receiver(post(an_event(traceparent=trace, priority=3, urgent=True)))
    [event] = receiver.handled
    assert event.extensions == {"traceparent": trace, "priority": "3", "urgent": "true"}
    assert delivery_of(event, trigger="http").trace_parent == trace


@pytest.mark.parametrize(
    ("content", "data"),
    [
        (an_event(data=None, datacontenttype="application/json"), b"null"),
        (an_event(data="text"), b'"text"'),
        (an_event(data="text", datacontenttype="application/x+json"), b'"text"'),
        (an_event(data="t\u00e4xt", datacontenttype="text/plain"), "t\u00e4xt".encode()),
        ({**an_event(), "data": {"n": 12345678901234567890.5}}, b'{"n": 1.2345678901234567e+19}'),
    ],
)
async def test_data_is_what_it_would_be_in_binary_mode(
    receiver: Receiver, content: dict[str, Any], data: bytes
) -> None:
    await receiver(post(content))
    assert receiver.handled[0].data == data


async def test_bytes_come_in_base64_and_no_data_is_none(receiver: Receiver) -> None:
    content = an_event(data_base64=base64.b64encode(b"\xff\0").decode())
    del content["data"]
    await receiver(post(content))
    without = an_event("e-2")
    del without["data"]
    await receiver(post(without))
    assert [event.data for event in receiver.handled] == [b"\xff\0", b""]


async def test_in_binary_mode_values_are_decoded_and_any_content_type_is_data(
    receiver: Receiver,
) -> None:
    asked = binary(
        b"\xff", ce_subject="%E2%82%AC%20uro", ce_myext="a%25b", content_type="image/png"
    )
    assert (await receiver(asked)).status_code == 204
    [event] = receiver.handled
    assert (event.subject, event.data, event.datacontenttype) == (
        "\u20ac uro",
        b"\xff",
        "image/png",
    )
    assert event.extensions == {"myext": "a%b"}


def without(name: str) -> dict[str, Any]:
    return {n: v for n, v in an_event().items() if n != name}


@pytest.mark.parametrize(
    "asked",
    [
        post(b""),
        post(b"{"),
        post(b"[]"),
        post(b"\xff"),
        post(b"[" * 100_000),
        post(b'{"specversion": "1.0", "id": ' + b"[" * 100_000),
        post(without("id")),
        post(without("source")),
        post(without("type")),
        post(without("specversion")),
        post(an_event(specversion="0.3")),
        post(an_event("")),
        post(an_event(source="")),
        post(an_event(type=7)),
        post(an_event(time="yesterday")),
        post(an_event(data_base64="AA==")),
        post({**without("data"), "data_base64": "no base64"}),
        post({**without("data"), "data_base64": 7}),
        post(an_event(data="\ud800", datacontenttype="text/plain")),
        post(b"{}", BATCH),
        post(b"7", "application/json", aeg_event_type="Notification"),
        binary(ce_subject="%ff"),
        binary(ce_specversion="2.0"),
        binary(ce_time="yesterday"),
        post({}, "application/json", ce_specversion="1.0"),
    ],
)
async def test_what_is_no_event_is_a_400_and_nothing_runs(
    receiver: Receiver, asked: HttpRequest
) -> None:
    assert problem_of(await receiver(asked)) == (400, "malformed")
    assert receiver.handled == []


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        (None, {}),
        ("application/json", {}),
        ("application/cloudevents+xml", {}),
        ("application/cloudevents+avro", {"ce_specversion": "1.0"}),
        ("application/cloudevents-batch+xml", {}),
        (f"{STRUCTURED}; charset=utf-16", {}),
        ("application/json", {"aeg_event_type": "Unheard"}),
    ],
)
async def test_another_format_is_a_415_that_names_those_there_are(
    receiver: Receiver, content_type: str | None, headers: dict[str, str]
) -> None:
    answer = await receiver(post(an_event(), content_type, **headers))
    assert problem_of(answer) == (415, "format-unsupported")
    assert STRUCTURED.encode() in answer.get_body()
    assert receiver.handled == []


async def test_a_key_that_no_store_can_hold_is_a_400(receiver: Receiver) -> None:
    answer = await receiver(post(an_event("i" * 1024)))
    assert problem_of(answer) == (400, "key-invalid")


async def test_a_body_that_is_too_large_is_a_413() -> None:
    receiver = Receiver(largest_body=10)
    assert problem_of(await receiver(post(an_event()))) == (413, "too-large")


async def test_of_two_at_once_one_runs_and_the_other_comes_back(receiver: Receiver) -> None:
    answers = await asyncio.gather(receiver(post(an_event())), receiver(binary()))
    assert sorted(a.status_code for a in answers) == [204, 409]
    assert len(receiver.handled) == 1


# Several events


def told(answer: HttpResponse) -> list[tuple[str | None, int, str]]:
    """What the answer tells of each event: its id, its status, and the problem's name."""
    body = json.loads(answer.get_body())
    assert [each["index"] for each in body["events"]] == list(range(len(body["events"])))
    return [
        (each.get("id"), each["status"], each.get("type", "").partition("#")[2])
        for each in body["events"]
    ]


async def test_when_all_are_done_the_answer_says_so(receiver: Receiver) -> None:
    answer = await receiver(post([an_event("a"), an_event("b"), an_event("a")], BATCH))
    assert answer.status_code == 200
    assert told(answer) == [("a", 204, ""), ("b", 204, ""), ("a", 204, "")]
    assert [event.id for event in receiver.handled] == ["a", "b"]


async def test_an_empty_batch_is_done(receiver: Receiver) -> None:
    answer = await receiver(post([], BATCH))
    assert (answer.status_code, told(answer)) == (200, [])


async def test_one_that_comes_back_makes_all_come_back_and_the_others_are_not_done_twice(
    receiver: Receiver,
) -> None:
    receiver.does["b"] = raising(TransientFailure("not now", retry_after=7))
    batch = [an_event("a"), an_event("b"), an_event("c")]

    answer = await receiver(post(batch, BATCH))

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "7"
    assert told(answer) == [("a", 204, ""), ("b", 503, "try-again"), ("c", 204, "")]
    del receiver.does["b"]
    again = await receiver(post(batch, BATCH))
    assert again.status_code == 200
    assert [event.id for event in receiver.handled] == ["a", "b", "c", "b"]


async def test_when_sending_again_would_not_help_the_answer_says_which_failed(
    receiver: Receiver,
) -> None:
    receiver.does["b"] = raising(PermanentFailure("Unknown", "there is no such order"))
    receiver.does["c"] = raising(MalformedContent("`status` is missing"))
    await receiver(post(an_event("d")))
    batch = [an_event("a"), an_event("b"), an_event("c"), an_event("d", type="x"), 7, an_event("")]

    answer = await receiver(post(batch, BATCH))

    assert answer.status_code == 422
    assert answer.mimetype == "application/problem+json"
    assert told(answer) == [
        ("a", 204, ""),
        ("b", 422, "refused"),
        ("c", 400, "malformed"),
        ("d", 422, "event-changed"),
        (None, 400, "malformed"),
        (None, 400, "malformed"),
    ]
    assert b"`status` is missing" in answer.get_body()


async def test_an_unexpected_failure_comes_back_without_its_text(receiver: Receiver) -> None:
    receiver.does["a"] = raising(LookupError("s3cret"))
    answer = await receiver(post([an_event("a"), an_event("b", specversion="9")], BATCH))
    assert answer.status_code == 503
    assert told(answer) == [("a", 500, "failed"), (None, 400, "malformed")]
    assert b"s3cret" not in answer.get_body()


async def test_when_the_store_is_down_the_rest_is_not_tried() -> None:
    store = DownStore()
    receiver = Receiver(consumer_over(store))
    answer = await receiver(post([an_event(f"e-{n}") for n in range(200)], BATCH))
    assert answer.status_code == 503
    assert {status for _, status, _ in told(answer)} == {503}
    details = [each["detail"] for each in json.loads(answer.get_body())["events"]]
    assert len({*details[1:]}) == 1
    assert details[0] != details[1] == "an earlier event met a store that is down"
    assert receiver.handled == []
    store.down = False
    assert (await receiver(post([an_event("e-0")], BATCH))).status_code == 200


async def test_a_batch_of_too_many_events_is_a_413_and_nothing_runs() -> None:
    receiver = Receiver(most_events=2)
    answer = await receiver(post([an_event(f"{n}") for n in range(3)], BATCH))
    assert problem_of(answer) == (413, "too-large")
    assert receiver.handled == []


# Handshakes


def options(**headers: str) -> HttpRequest:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("OPTIONS", URL, headers=sent, body=b"")


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        (("eventgrid.azure.net",), "eventgrid.azure.net", True),
        (("eventgrid.azure.net",), "EventGrid.azure.net", True),
        (("*",), "anybody.example", True),
        (("eventgrid.azure.net",), "anybody.example", False),
        (("eventgrid.azure.net",), "evil-eventgrid.azure.net", False),
        ((), "eventgrid.azure.net", False),
    ],
)
async def test_a_sender_that_asks_is_told_whether_it_may_send(
    origins: tuple[str, ...], origin: str, allowed: bool
) -> None:
    answer = await Receiver(origins=origins)(
        options(WebHook_Request_Origin=origin, WebHook_Request_Callback="http://10.0.0.1/")
    )
    if allowed:
        assert answer.status_code == 200
        assert answer.headers["WebHook-Allowed-Origin"] == origin
        assert answer.headers["WebHook-Allowed-Rate"] == "*"
        assert "POST" in answer.headers["Allow"]
    else:
        assert problem_of(answer) == (403, "origin-unknown")
        assert "WebHook-Allowed-Origin" not in answer.headers


async def test_who_asks_without_a_name_gets_a_400(receiver: Receiver) -> None:
    assert problem_of(await receiver(options())) == (400, "malformed")


async def test_event_grid_s_validation_gets_its_code_back(receiver: Receiver) -> None:
    content = in_event_grid_schema(
        eventType="Microsoft.EventGrid.SubscriptionValidationEvent",
        data={"validationCode": "512d38b6", "validationUrl": "http://10.0.0.1/"},
    )
    asked = post([content], "application/json", aeg_event_type="SubscriptionValidation")
    answer = await receiver(asked)
    assert (answer.status_code, json.loads(answer.get_body())) == (
        200,
        {"validationResponse": "512d38b6"},
    )
    assert receiver.handled == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"[{}]", b'[{"data": {}}]', b'[{"data": 7}]', b"[" * 10**5]
)
async def test_a_validation_without_a_code_is_a_400(receiver: Receiver, body: bytes) -> None:
    asked = post(body, "application/json", aeg_event_type="SubscriptionValidation")
    assert problem_of(await receiver(asked)) == (400, "malformed")


async def test_event_grid_s_farewell_is_acknowledged(receiver: Receiver) -> None:
    asked = post(
        [in_event_grid_schema()], "application/json", aeg_event_type="SubscriptionDeletion"
    )
    assert (await receiver(asked)).status_code == 204
    assert receiver.handled == []


# Whatever comes


ATTRIBUTES = st.sampled_from(
    ["id", "source", "type", "subject", "time", "specversion", "data", "x"]
)
VALUES = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)


@given(
    content=st.dictionaries(ATTRIBUTES, VALUES)
    | st.lists(st.dictionaries(ATTRIBUTES, VALUES) | VALUES, max_size=3)
    | st.binary(max_size=20),
    content_type=st.sampled_from([STRUCTURED, BATCH, "application/json", "text/plain", ""]),
    headers=st.dictionaries(
        st.sampled_from(
            ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "aeg-event-type"]
        ),
        st.sampled_from(["1.0", "Notification", "SubscriptionValidation"]) | st.text(max_size=6),
    ),
    method=st.sampled_from(["POST", "OPTIONS"]),
)
def test_no_request_makes_the_receiver_raise(
    content: Any, content_type: str, headers: dict[str, str], method: str
) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    asked = HttpRequest(method, URL, headers={**headers, "Content-Type": content_type}, body=body)
    answer = asyncio.run(Receiver()(asked))
    assert answer.status_code in {200, 204, 400, 413, 415, 422}


def test_a_handler_that_takes_more_than_the_event_is_refused_at_start_up() -> None:
    def handler(event: CloudEvent, context: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="one parameter, 'event'"):
        cloud_events.idempotent(consumer_over(MemoryStore()))(handler)
