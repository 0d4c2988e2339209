"""A version guard behind each adapter: newer, equal and older states are all acknowledged."""

import json
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency import ConfigurationError, State, VersionGuard, apply_if_newer
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.triggers import http
from tests.triggers.doubles import BROKERS, Broker, Effects


class Levels(Effects):
    """A handler whose messages carry a level; whatever else they say, `Effects` does."""

    def handle(self, body: bytes) -> None:
        super().handle(body)
        content = json.loads(body)
        if "version" in content:
            apply_if_newer(State(id="tea", version=content["version"], document={"of": "tea"}))


def body(version: int) -> bytes:
    return json.dumps({"order_id": "o-1", "version": version}).encode()


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.mark.parametrize("kind", BROKERS)
class TestBrokers:
    @pytest.fixture
    def broker(self, kind: type[Broker], store: MemoryStateStore) -> Broker:
        return kind(VersionGuard("levels", store), Levels(), fingerprint=None)

    async def test_newer_equal_and_older_states_are_acknowledged(
        self, broker: Broker, store: MemoryStateStore
    ) -> None:
        settled = [await broker.deliver(body(version)) for version in (1, 3, 3, 2)]
        assert settled == ["done"] * 4
        assert store.documents() == {"tea": {"of": "tea", "version": 3}}

    async def test_a_version_that_is_none_is_set_aside_with_the_reason(
        self, broker: Broker, store: MemoryStateStore
    ) -> None:
        assert await broker.deliver(body(-1)) == "aside: InvalidVersion"
        assert store.documents() == {}

    async def test_a_refusal_is_set_aside_and_what_cannot_be_done_now_comes_back(
        self, broker: Broker
    ) -> None:
        refused = b'{"order_id": "o-1", "do": "refuse"}'
        later = b'{"order_id": "o-1", "do": "not now"}'
        assert await broker.deliver(refused) == "aside: OutOfStock"
        assert await broker.deliver(later) == "back"

    async def test_a_handler_that_names_no_state_is_a_fault_and_never_acknowledged(
        self, broker: Broker
    ) -> None:
        with pytest.raises(ConfigurationError):
            await broker.deliver(b'{"order_id": "o-1"}')


async def test_over_http_every_caller_gets_the_handlers_own_answer(
    store: MemoryStateStore,
) -> None:
    @http.idempotent(VersionGuard("levels", store))
    async def put_level(request: func.HttpRequest) -> func.HttpResponse:
        content: dict[str, Any] = request.get_json()
        apply_if_newer(State(id="tea", version=content["version"], document={}))
        return func.HttpResponse(f"seen {content['version']}", status_code=200)

    def request(version: int) -> func.HttpRequest:
        return func.HttpRequest(
            method="PUT",
            url="https://app/api/level",
            headers={"Idempotency-Key": f"k-{version}"},
            body=json.dumps({"version": version}).encode(),
        )

    answers = [await put_level(request(version)) for version in (2, 2, 1)]
    assert [(a.status_code, a.get_body()) for a in answers] == [
        (200, b"seen 2"),
        (200, b"seen 2"),
        (200, b"seen 1"),
    ]
    assert store.documents()["tea"]["version"] == 2
