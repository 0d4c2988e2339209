"""HTTP: what is answered while it is not, or never will be, possible."""

import asyncio

import azure.functions as func
import pytest
from azure.functions import HttpResponse

from shared.idempotency import (
    Handled,
    MalformedContent,
    Outcome,
    Record,
    Status,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import http
from shared.idempotency.triggers.http_request import to_delivery
from tests.triggers.doubles import DownStore, Told, consumer_over
from tests.triggers.http_route import PATIENT, Route, problem_of, request


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
