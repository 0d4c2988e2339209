"""Whose key it is, in the host: callers and routes apart; and a client that retries as it should."""

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.host.process import ROOT, HostProcess
from local.services.azurite import Azurite
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import eventually, order
from tests.local.host.toy_app import ToyApp

pytestmark = pytest.mark.integration

ROUTES = f"""
import sys
sys.path.insert(1, {str(ROOT)!r})
from shared.idempotency import Consumer
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import http

store = MemoryStore()
shop = Consumer("shop", store)

async def make(request, name):
    effect(name, request.headers.get("x-functions-key"))
    await asyncio.sleep(0.3)
    return func.HttpResponse(f"{{name}} {{len(EFFECTS.read_text().splitlines())}}", status_code=201)

@app.route(route="carts", methods=["POST", "PUT"], trigger_arg_name="request")
@http.idempotent(shop, caller=http.function_key_caller)
async def carts(request: func.HttpRequest) -> func.HttpResponse:
    return await make(request, "cart")

@app.route(route="wishes", methods=["POST"], trigger_arg_name="request")
@http.idempotent(shop, caller=http.function_key_caller, required=False)
async def wishes(request: func.HttpRequest) -> func.HttpResponse:
    return await make(request, "wish")
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ToyApp, httpx.Client]]:
    app = ToyApp(tmp_path_factory.mktemp("app"), ROUTES)
    with (
        HostProcess(app.folder) as host,
        httpx.Client(base_url=f"{host.base_url}/api", timeout=30) as client,
    ):
        yield app, client


def sent(
    client: httpx.Client,
    path: str = "/carts",
    *,
    caller: str = "a",
    key: str | None = "k",
    **more: Any,
) -> httpx.Response:
    headers = {"x-functions-key": caller, **({} if key is None else {"Idempotency-Key": key})}
    return client.request(more.pop("method", "POST"), path, headers=headers, **more)


def test_given_two_callers_when_they_use_one_key_then_each_gets_its_own_answer(
    shop: tuple[ToyApp, httpx.Client],
) -> None:
    app, client = shop
    before = len(app.effects("cart"))

    answers = [sent(client, caller=caller, key="one-key") for caller in ("a", "b", "a", "b")]

    bodies = [a.text for a in answers]
    assert bodies[:2] == bodies[2:]
    assert bodies[0] != bodies[1], "a caller must never get another's answer"
    assert [c for [c] in app.effects("cart")[before:]] == ["a", "b"]
    assert ["idempotent-replayed" in a.headers for a in answers] == [False, False, True, True]


def test_given_one_key_when_it_is_used_on_two_routes_or_methods_then_each_runs(
    shop: tuple[ToyApp, httpx.Client],
) -> None:
    app, client = shop
    before = len(app.effects("cart")), len(app.effects("wish"))

    asked = [("/carts", "POST"), ("/wishes", "POST"), ("/carts", "PUT")] * 2
    answers = [sent(client, path, method=method, key="routes") for path, method in asked]

    assert [a.status_code for a in answers] == [201] * 6
    assert len({a.text for a in answers[:3]}) == 3
    assert [a.text for a in answers[3:]] == [a.text for a in answers[:3]]
    assert (len(app.effects("cart")), len(app.effects("wish"))) == (before[0] + 2, before[1] + 1)


def test_given_50_equal_requests_at_once_when_they_come_then_one_runs_and_none_contradicts_it(
    shop: tuple[ToyApp, httpx.Client],
) -> None:
    app, client = shop
    before = len(app.effects("cart"))

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: sent(client, key="at-once"), range(50)))

    assert len(app.effects("cart")) == before + 1
    assert {a.status_code for a in answers} == {201, 409}
    assert len({a.text for a in answers if a.status_code == 201}) == 1
    assert all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status_code == 409)


def test_given_an_optional_key_when_it_is_left_out_then_each_request_runs(
    shop: tuple[ToyApp, httpx.Client],
) -> None:
    app, client = shop
    before = len(app.effects("wish"))
    answers = [sent(client, "/wishes", key=None) for _ in range(2)]
    assert [a.status_code for a in answers] == [201] * 2
    assert len(app.effects("wish")) == before + 2


# The client in docs/http.md


class Trouble(httpx.BaseTransport):
    """A way to the app on which the first answers are lost, or others come in their place."""

    def __init__(self, *instead: Exception | httpx.Response) -> None:
        self._way = httpx.HTTPTransport()
        self._instead = list(instead)
        self.keys: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        answer = self._way.handle_request(request)
        answer.read()
        match self._instead.pop(0) if self._instead else None:
            case Exception() as error:
                raise error
            case httpx.Response() as other:
                return other
        return answer

    def close(self) -> None:
        self._way.close()


def documented_client(naps: list[float]) -> dict[str, Any]:
    """What the example in the document defines; its sleeps are written down instead of slept."""
    text = (Path(ROOT) / "docs" / "http.md").read_text()
    [example] = re.findall(r"<!-- run by [^>]*-->\n```python\n(.*?)```", text, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(example, "docs/http.md", "exec"), defined)  # noqa: S102 - our own document

    class Time:
        @staticmethod
        def sleep(seconds: float) -> None:
            naps.append(seconds)

    defined["time"] = Time
    return defined


@pytest.fixture(scope="module")
def app(azurite: Azurite) -> Iterator[RunningApp]:
    with running_app(azurite) as running:
        yield running


def test_given_answers_that_are_lost_when_the_documented_client_retries_then_there_is_one_order(
    app: RunningApp,
) -> None:
    naps: list[float] = []
    in_flight = httpx.Response(409, headers={"Retry-After": "3"})
    way = Trouble(httpx.ReadTimeout("lost"), httpx.Response(502), in_flight)
    content = order(f"client-{uuid.uuid4().hex[:8]}")

    with httpx.Client(base_url=app.http.base_url, transport=way) as client:
        answer = documented_client(naps)["submit"](client, content)

    assert answer.status_code == 202
    assert answer.headers["idempotent-replayed"] == "true"
    assert len(way.keys) == 4
    assert len({*way.keys}) == 1, "a retry under another key is another request"
    assert len(naps) == 3
    assert naps[2] >= 3, "as Retry-After says"
    path = f"/orders/{content['order_id']}"
    eventually(lambda: app.http.get(path).is_success, what="the order")


@pytest.mark.parametrize("change", [{"currency": "euro"}, {"lines": []}])
def test_given_a_refusal_when_the_documented_client_gets_it_then_it_does_not_insist(
    app: RunningApp, change: dict[str, Any]
) -> None:
    naps: list[float] = []
    way = Trouble()
    with httpx.Client(base_url=app.http.base_url, transport=way) as client:
        answer = documented_client(naps)["submit"](client, order(**change))
    assert answer.status_code == 400
    assert (len(way.keys), naps) == (1, [])


def test_given_no_answer_at_all_when_the_documented_client_has_tried_enough_then_it_says_so(
    app: RunningApp,
) -> None:
    lost = [httpx.ConnectError("lost")] * 3
    with httpx.Client(base_url=app.http.base_url, transport=Trouble(*lost)) as client:
        submit = documented_client([])["submit"]
        with pytest.raises(httpx.ConnectError):
            submit(client, order(), tries=3)


def test_given_the_policy_page_when_it_is_read_then_it_tells_the_expiry_and_every_problem(
    app: RunningApp,
) -> None:
    page = app.http.get("/problems").text
    described = app.http.get("/openapi.json").json()
    types = described["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]
    assert re.search(r"remembered for \d+ days after its request finished", page)
    for name in types:
        assert f"## {name.partition('#')[2]}\n" in page
