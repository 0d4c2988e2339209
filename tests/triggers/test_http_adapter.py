"""HTTP: one execution for each Idempotency-Key, and what everybody else is answered."""

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from typing import Any

import azure.functions as func
import pytest
from azure.functions import HttpRequest, HttpResponse
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    Handled,
    Inbox,
    MalformedContent,
    MissingKey,
    Outcome,
    PermanentFailure,
    Policy,
    Protected,
    Record,
    Status,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.triggers import http
from shared.idempotency.triggers.http_request import to_delivery
from shared.idempotency.triggers.problems import TYPES
from tests.triggers.doubles import DownStore, Told, consumer_over

URL = "https://shop.example/api/orders"
PATIENT = Policy(lease=10.0, heartbeat=1.0, wait=10.0, deadline=20.0, memory=0)


def request(
    key: str | None = "k-1",
    body: bytes = b'{"quantity": 1}',
    *,
    method: str = "POST",
    url: str = URL,
    params: dict[str, str] | None = None,
    **headers: str,
) -> HttpRequest:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["Idempotency-Key"] = key
    return HttpRequest(method, url, headers=sent, params=params or {}, body=body)


class Route:
    """A protected function; ``answers`` are given one after the other, the last one again and again.

    An exception among them is raised. ``ran`` counts the executions.
    """

    def __init__(self, consumer: Protected | None = None, **options: Any) -> None:
        self.ran = 0
        self.answers: list[Callable[[], Any]] = [lambda: HttpResponse(f"made {self.ran}")]
        self.store = MemoryStore()

        async def submit(request: func.HttpRequest) -> func.HttpResponse:
            self.ran += 1
            await asyncio.sleep(0)
            answer = self.answers[min(self.ran, len(self.answers)) - 1]()
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, HttpResponse)
            return answer

        protected = consumer or consumer_over(self.store, PATIENT)
        self.function = http.idempotent(protected, **options)(submit)

    async def __call__(self, asked: HttpRequest) -> HttpResponse:
        answer = await self.function(asked)
        assert isinstance(answer, HttpResponse)
        return answer


@pytest.fixture
def route() -> Route:
    return Route()


def problem_of(response: HttpResponse) -> tuple[int, str]:
    """Status and last part of the type of a problem, which is complete and explained."""
    assert response.mimetype == "application/problem+json"
    assert response.headers["Cache-Control"] == "no-store"
    body = json.loads(response.get_body())
    assert body.keys() == {"type", "title", "status", "detail"}
    assert body["status"] == response.status_code
    assert all(body.values())
    name = body["type"].partition("#")[2]
    assert name in TYPES
    return response.status_code, name


# The key


@pytest.mark.parametrize("key", [None, "", "   ", '""'])
async def test_without_a_key_it_is_a_400_and_nothing_runs(route: Route, key: str | None) -> None:
    assert problem_of(await route(request(key))) == (400, "key-missing")
    assert route.ran == 0


@pytest.mark.parametrize(
    "key",
    ["k" * 256, "k\u00e9", "k\tk", "k\0", "k\x7f", "k\nk", "🦄", '"', '"k', '"k"k"', '"k"; a'],
)
async def test_a_key_that_is_none_is_a_400_and_nothing_runs(route: Route, key: str) -> None:
    assert problem_of(await route(request(key))) == (400, "key-invalid")
    assert route.ran == 0


@pytest.mark.parametrize("key", ["k", "k" * 255, "a b", "~!@#$%^&*()", "a,b", "k\\", '"a b"'])
async def test_1_to_255_characters_of_printable_ascii_are_a_key(route: Route, key: str) -> None:
    assert (await route(request(key))).status_code == 200


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [("k-1", '"k-1"'), ("k-1", ' "k-1" '), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"')],
)
async def test_a_quoted_and_a_bare_key_are_the_same(route: Route, bare: str, quoted: str) -> None:
    await route(request(bare))
    assert (await route(request(quoted))).headers["Idempotent-Replayed"] == "true"
    assert route.ran == 1


@pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])
async def test_the_header_s_name_may_be_written_any_way(route: Route, name: str) -> None:
    asked = HttpRequest("POST", URL, headers={name: "k-1"}, body=b"{}")
    assert (await route(asked)).status_code == 200


# The scope


@pytest.mark.parametrize(
    "other",
    [
        request(x_ms_client_principal_id="somebody"),
        request(x_functions_key="f-2"),
        request(params={"code": "f-2"}),
        request(method="PUT"),
        request(url=f"{URL}/7"),
        request("k-2"),
    ],
    ids=["principal", "function key", "function key in the query", "method", "route", "key"],
)
async def test_another_caller_method_or_route_is_another_request(
    route: Route, other: HttpRequest
) -> None:
    await route(request())
    assert "Idempotent-Replayed" not in (await route(other)).headers
    assert route.ran == 2


async def test_a_principal_outranks_the_function_key_and_addresses_never_count(
    route: Route,
) -> None:
    await route(
        request(x_ms_client_principal_id="p", x_functions_key="a", x_forwarded_for="1.2.3.4")
    )
    await route(
        request(x_ms_client_principal_id="p", x_functions_key="b", x_forwarded_for="5.6.7.8")
    )
    assert route.ran == 1


async def test_a_caller_of_one_s_own_may_be_told(route: Route) -> None:
    route = Route(caller=lambda asked: asked.headers["x-tenant"])
    await route(request(x_tenant="a"))
    await route(request(x_tenant="a"))
    await route(request(x_tenant="b"))
    assert route.ran == 2


def test_a_function_key_is_never_part_of_the_key_as_it_is() -> None:
    for asked in (request(x_functions_key="s3cret"), request(params={"code": "s3cret"})):
        assert "s3cret" not in to_delivery(asked).key


async def test_a_very_long_route_is_no_fault_of_the_key(route: Route) -> None:
    long = [URL + "/" + "é" * 1000, URL + "/" + "é" * 1001]
    for url in long * 2:
        assert (await route(request("k" * 255, url=url))).status_code == 200
    assert route.ran == 2


# The fingerprint


@pytest.mark.parametrize(
    "other",
    [
        request(body=b'{"quantity": 2}'),
        request(body=b"not json"),
        request(url=f"{URL}?dry=1", params={"dry": "1"}),
        request(params={"dry": "1"}),
    ],
    ids=["body", "no JSON", "query", "query without the URL"],
)
async def test_the_key_with_another_request_is_a_422_and_nothing_runs(
    route: Route, other: HttpRequest
) -> None:
    await route(request())
    assert problem_of(await route(other)) == (422, "key-reused")
    assert route.ran == 1


async def test_repeated_query_parameters_all_count(route: Route) -> None:
    await route(request(url=f"{URL}?a=1&a=2", params={"a": "2"}))
    other = await route(request(url=f"{URL}?a=3&a=2", params={"a": "2"}))
    assert problem_of(other) == (422, "key-reused")


async def test_the_order_of_json_keys_and_of_parameters_does_not_matter(route: Route) -> None:
    await route(request(body=b'{"a": 1, "b": [2]}', url=f"{URL}?x=1&y=2"))
    again = await route(request(body=b'{"b":[2],"a":1}', url=f"{URL}?y=2&x=1"))
    assert again.headers["Idempotent-Replayed"] == "true"


async def test_a_rotated_function_key_in_the_query_is_no_other_request() -> None:
    one, other = (
        to_delivery(request(url=f"{URL}?code={key}&a=1", params={"code": key, "a": "1"}))
        for key in ("old", "new")
    )
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 100_000, gzip.compress(b"x")])
async def test_a_body_of_any_bytes_is_compared_byte_by_byte(route: Route, body: bytes) -> None:
    assert (await route(request(body=body))).status_code == 200
    assert (await route(request(body=body))).headers["Idempotent-Replayed"] == "true"
    assert problem_of(await route(request(body=body + b"\x01"))) == (422, "key-reused")


async def test_a_body_that_is_too_large_is_a_413_and_nothing_runs() -> None:
    route = Route(largest_body=100)
    assert (await route(request(body=b"x" * 100))).status_code == 200
    assert problem_of(await route(request("k-2", body=b"x" * 101))) == (413, "too-large")
    assert route.ran == 1


async def test_a_body_of_a_megabyte_is_taken_and_a_larger_one_refused_by_default(
    route: Route,
) -> None:
    assert (await route(request(body=b"x" * 2**20))).status_code == 200
    assert (await route(request("k-2", body=b"x" * (2**20 + 1)))).status_code == 413


# The replay


async def test_a_replay_has_the_status_the_headers_that_matter_and_the_body(route: Route) -> None:
    kept = {"Location": "/api/orders/7", "ETag": '"1"', "Content-Language": "de"}
    route.answers = [lambda: HttpResponse('{"a": "ü"}', status_code=201, headers=kept,
                                          mimetype="application/json", charset="latin-1")]  # fmt: skip
    first, replay = await route(request()), await route(request())

    assert route.ran == 1
    assert replay.headers.pop("Idempotent-Replayed") == "true"
    assert described(first) == described(replay)
    assert first.get_body() == '{"a": "ü"}'.encode("latin-1")


async def test_a_body_of_any_bytes_is_replayed_with_its_encoding(route: Route) -> None:
    packed = gzip.compress(b"hello")
    route.answers = [lambda: HttpResponse(packed, headers={"Content-Encoding": "gzip"})]
    await route(request())
    replay = await route(request())
    assert (replay.get_body(), replay.headers["Content-Encoding"]) == (packed, "gzip")


@pytest.mark.parametrize(
    "name", ["Set-Cookie", "WWW-Authenticate", "Authorization", "X-Api-Key", "Idempotency-Key"]
)
async def test_cookies_and_authentication_headers_go_to_the_first_caller_only(
    route: Route, name: str
) -> None:
    route.answers = [lambda: HttpResponse("ok", headers={name: "s3cret"})]
    assert (await route(request())).headers[name] == "s3cret"
    replay = await route(request())
    assert "s3cret" not in str(replay.headers)
    assert replay.get_body() == b"ok"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 303, 402, 404, 410, 418])
async def test_a_success_and_a_refusal_after_the_work_are_kept(route: Route, status: int) -> None:
    route.answers = [lambda: HttpResponse(status_code=status)]
    assert (await route(request())).status_code == status
    assert (await route(request())).status_code == status
    assert route.ran == 1


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422, 429, 500, 502, 503])
async def test_what_may_be_otherwise_next_time_is_passed_on_and_frees_the_key(
    route: Route, status: int
) -> None:
    headers = {"Retry-After": "7", "Set-Cookie": "a=b"}
    route.answers = [
        lambda: HttpResponse(b"no", status_code=status, headers=headers),
        lambda: HttpResponse("made", status_code=201),
    ]
    refused = await route(request())
    assert (refused.status_code, refused.get_body()) == (status, b"no")
    assert refused.headers["Retry-After"] == "7"
    made = await route(request())
    assert made.status_code == 201
    assert "Idempotent-Replayed" not in made.headers


async def test_over_an_inbox_what_is_not_kept_is_not_committed() -> None:
    inbox = MemoryInbox()
    route = Route(Inbox("submit_order", inbox))
    route.answers = [lambda: HttpResponse(status_code=500), lambda: HttpResponse("made")]
    assert (await route(request())).status_code == 500
    assert inbox.documents() == {}
    assert (await route(request())).get_body() == b"made"
    assert (await route(request())).headers["Idempotent-Replayed"] == "true"


async def test_a_response_too_large_to_keep_goes_to_the_first_caller_and_a_409_to_the_others(
    route: Route,
) -> None:
    route.answers = [lambda: HttpResponse("x" * 100_000)]
    assert len((await route(request())).get_body()) == 100_000
    assert problem_of(await route(request())) == (409, "response-not-kept")
    assert route.ran == 1


async def test_a_refusal_for_good_is_the_same_422_for_every_duplicate(route: Route) -> None:
    route.answers = [lambda: PermanentFailure("OutOfStock", "there is no more of it")]
    first, replay = await route(request()), await route(request())
    assert problem_of(first) == problem_of(replay) == (422, "refused")
    assert b"OutOfStock: there is no more of it" in first.get_body()
    assert replay.headers.pop("Idempotent-Replayed") == "true"
    assert described(first) == described(replay)
    assert route.ran == 1


# Not now


async def test_of_fifty_equal_requests_at_once_one_runs_and_the_others_are_told_so(
    route: Route,
) -> None:
    gate = asyncio.Event()

    @http.idempotent(consumer_over(route.store, PATIENT))
    async def submit(request: func.HttpRequest) -> func.HttpResponse:
        route.ran += 1
        await gate.wait()
        return HttpResponse("made", status_code=201)

    running = [asyncio.create_task(submit(request())) for _ in range(50)]
    done: set[asyncio.Task[HttpResponse]] = set()
    while len(done) < 49:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        await asyncio.sleep(0)
    refused = [task.result() for task in done]
    gate.set()
    responses = await asyncio.gather(*running)

    assert route.ran == 1
    assert sorted(r.status_code for r in responses) == [201] + [409] * 49
    for response in refused:
        assert problem_of(response) == (409, "in-flight")
        assert 1 <= int(response.headers["Retry-After"]) <= 12
    assert (await submit(request())).headers["Idempotent-Replayed"] == "true"


async def test_retry_after_is_what_is_left_of_the_lease(route: Route) -> None:
    key = to_delivery(request()).key
    lease = 120.0
    await route.store.insert(
        Record(consumer="process_order", key=key, status=Status.IN_PROGRESS, owner="x", lease=lease)
    )
    response = await route(request())
    assert problem_of(response) == (409, "in-flight")
    assert lease - 1 <= int(response.headers["Retry-After"]) <= lease + 3


async def test_while_the_store_is_down_it_is_a_503_and_nothing_runs() -> None:
    store = DownStore()
    route = Route(consumer_over(store))
    response = await route(request())
    assert problem_of(response) == (503, "store-unavailable")
    assert int(response.headers["Retry-After"]) >= 1
    assert route.ran == 0
    store.down = False
    assert (await route(request())).status_code == 200


@pytest.mark.parametrize(("hint", "told"), [(None, "5"), (0.2, "1"), (7.1, "8")])
async def test_a_handler_that_cannot_do_it_now_is_a_503_and_frees_the_key(
    route: Route, hint: float | None, told: str
) -> None:
    route.answers = [
        lambda: TransientFailure("s3cret provider is down", retry_after=hint),
        lambda: HttpResponse("made"),
    ]
    response = await route(request())
    assert problem_of(response) == (503, "try-again")
    assert response.headers["Retry-After"] == told
    assert b"s3cret" not in response.get_body()
    assert (await route(request())).get_body() == b"made"


@pytest.mark.parametrize("error", [LookupError("s3cret"), KeyError("s3cret"), OSError("s3cret")])
async def test_an_unexpected_exception_is_a_500_without_its_text_and_frees_the_key(
    route: Route, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    route.answers = [lambda: error, lambda: HttpResponse("made")]
    response = await route(request())
    assert problem_of(response) == (500, "failed")
    assert b"s3cret" not in response.get_body()
    assert b"Traceback" not in response.get_body()
    assert "Traceback" in caplog.text, "the operator sees it"
    assert (await route(request())).get_body() == b"made"


async def test_a_handler_that_gives_no_response_fails_and_says_so_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @http.idempotent(consumer_over(MemoryStore()))
    async def submit(request):  # type: ignore[no-untyped-def]
        return "text"

    assert problem_of(await submit(request())) == (500, "failed")
    assert "returned str, no func.HttpResponse" in caplog.text


async def test_content_the_handler_rejects_is_a_400_that_says_what_is_wrong(route: Route) -> None:
    route.answers = [lambda: MalformedContent("`quantity` is missing")]
    response = await route(request())
    assert problem_of(response) == (400, "malformed")
    assert b"`quantity` is missing" in response.get_body()


@pytest.mark.parametrize(
    ("outcome", "name"), [(Outcome.QUARANTINED, "quarantined"), (Outcome.TOO_OLD, "too-old")]
)
async def test_what_needs_a_person_is_a_409_with_the_reason(outcome: Outcome, name: str) -> None:
    told = Told(Handled(outcome=outcome, reason="Reason", description="was the card charged?"))
    response = await Route(told)(request())
    assert problem_of(response) == (409, name)
    assert b"was the card charged?" in response.get_body()


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_every_outcome_has_an_answer(outcome: Outcome) -> None:
    told = Told(Handled(outcome=outcome, reason="Reason", description="because"))
    assert problem_of(await Route(told)(request()))


# Any request at all


@given(
    key=st.none() | st.text(max_size=300),
    body=st.binary(max_size=50),
    headers=st.dictionaries(
        st.sampled_from(["traceparent", "x-ms-client-principal-id", "x-functions-key", "x"]),
        st.text(max_size=50),
    ),
    url=st.sampled_from([URL, "", "http://", "http://[", "//", "\udcff"]) | st.text(max_size=50),
    params=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_no_request_makes_the_adapter_raise(
    key: str | None, body: bytes, headers: dict[str, str], url: str, params: dict[str, str]
) -> None:
    async def ask() -> None:
        route = Route()
        sent = headers if key is None else {**headers, "Idempotency-Key": key}
        asked = HttpRequest("POST", url, headers=sent, params=params, body=body)
        assert (await route(asked)).status_code in {200, 400, 500}
        assert (await route(asked)).status_code in {200, 400, 500}
        assert route.ran <= 1

    asyncio.run(ask())


@given(key=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_any_key_is_the_same_bare_and_quoted_unless_it_begins_with_a_quote(key: str) -> None:
    key = key.strip()[:255]
    if not key or key.startswith('"'):
        return
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert http.idempotency_key_of(request(key)) == key
    assert http.idempotency_key_of(request(f'"{escaped}"')) == key


async def test_the_payload_is_in_no_log_and_in_no_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    route = Route()
    route.answers = [
        lambda: HttpResponse(status_code=500),
        lambda: PermanentFailure("OutOfStock"),
    ]
    answers = [
        await route(request(body=body))
        for body in (
            b'{"card": "s3cret"}',
            b'{"card": "s3cret"}',
            b'{"card": "s3cret!"}',
            b"s3cret",
        )
    ]
    assert [a.status_code for a in answers] == [500, 422, 422, 422]
    said = [
        caplog.text,
        *(str(a.get_body()) for a in answers),
        *(str(vars(r)) for r in caplog.records),
    ]
    assert "s3cret" not in "\n".join(said)


async def test_told_to_reject_it_is_a_400() -> None:
    assert problem_of(await Route(Told(MissingKey("no key")))(request())) == (400, "key-missing")


def described(response: HttpResponse) -> tuple[Any, ...]:
    headers = sorted(response.headers.items())
    return response.status_code, response.mimetype, response.charset, headers, response.get_body()
