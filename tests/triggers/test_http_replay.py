"""HTTP: what the first caller gets, what is kept of it, and what the others get."""

import gzip

import pytest
from azure.functions import HttpResponse

from shared.idempotency import (
    Inbox,
    MalformedContent,
    PermanentFailure,
)
from shared.idempotency.stores.memory_inbox import MemoryInbox
from tests.triggers.http_route import Route, described, problem_of, request


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


@pytest.mark.parametrize("status", [200, 201, 202, 204, 303, 400, 402, 404, 409, 410, 418, 422])
async def test_a_success_and_a_refusal_after_the_work_are_kept(route: Route, status: int) -> None:
    route.answers = [lambda: HttpResponse(status_code=status)]
    assert (await route(request())).status_code == status
    assert (await route(request())).status_code == status
    assert route.ran == 1


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503])
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


async def test_a_handler_that_refuses_before_any_effect_leaves_the_key_to_the_corrected_request(
    route: Route,
) -> None:
    def refuse() -> HttpResponse:
        raise MalformedContent("Expected `int` - at `$.quantity`", reason="SchemaViolation")

    route.answers = [refuse, lambda: HttpResponse("made", status_code=201)]
    refused = await route(request(body=b'{"quantity": "two"}'))
    assert refused.status_code == 400
    assert b"$.quantity" in refused.get_body()
    made = await route(request(body=b'{"quantity": 2}'))
    assert made.status_code == 201


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
