"""`/api/health/store` tells whether the store answers, to who has a key, with what to do if not."""

import json
from typing import Any

import azure.functions as func
import msgspec

from blueprints import operations
from bootstrap import build
from shared.idempotency import StoreUnavailable
from shared.idempotency.stores.memory import MemoryStore


class Down(MemoryStore):
    async def read(self, consumer: str, key: str) -> Any:
        raise StoreUnavailable("Table Storage answered 403: give the role", retry_after=7.0)


def function(store: MemoryStore) -> Any:
    parts = build({"AzureWebJobsStorage": "UseDevelopmentStorage=true"})
    stores = parts.stores._replace(records=store)
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    operations.register(app, msgspec.structs.replace(parts, stores=stores))
    (found,) = [f for f in app.get_functions() if f.get_function_name() == "store_health"]
    return found


async def asked(store: MemoryStore) -> func.HttpResponse:
    request = func.HttpRequest("GET", "/api/health/store", body=b"")
    answer: func.HttpResponse = await function(store).get_user_function()(request)
    return answer


async def test_given_a_store_that_answers_then_it_is_ok_and_nothing_is_written() -> None:
    store = MemoryStore()
    answer = await asked(store)
    assert answer.status_code == 200
    assert json.loads(answer.get_body())["status"] == "ok"
    assert store.addresses() == []


async def test_given_a_store_that_does_not_answer_then_it_is_a_503_that_says_why() -> None:
    answer = await asked(Down())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
    assert json.loads(answer.get_body())["detail"].endswith("give the role")


def test_who_has_no_key_is_not_told() -> None:
    trigger = function(MemoryStore()).get_trigger().get_dict_repr()
    assert str(trigger["authLevel"]) == "FUNCTION"
