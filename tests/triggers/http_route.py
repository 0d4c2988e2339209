"""A protected HTTP function to ask, and what the tests read out of its answers."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import azure.functions as func
from azure.functions import HttpRequest, HttpResponse

from shared.idempotency import (
    Policy,
    Protected,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import http
from shared.idempotency.triggers.problems import TYPES
from tests.triggers.doubles import consumer_over

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

        self.consumer = consumer or consumer_over(self.store, PATIENT)
        self.function = http.idempotent(self.consumer, **options)(submit)

    async def __call__(self, asked: HttpRequest) -> HttpResponse:
        answer = await self.function(asked)
        assert isinstance(answer, HttpResponse)
        return answer


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


def described(response: HttpResponse) -> tuple[Any, ...]:
    headers = sorted(response.headers.items())
    return response.status_code, response.mimetype, response.charset, headers, response.get_body()
