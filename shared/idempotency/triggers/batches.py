"""Several events in one request: each is handled by itself, and the answer tells what became of each."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import azure.functions as func

from ..errors import IdempotencyError, StoreUnavailable
from .cloud_event import CloudEvent
from .http_response import refusal
from .problems import problem

_DONE = 204
_NOT_TRIED = "an earlier event met a store that is down"


class Batch:
    """The events of one request, in their order, and what became of them."""

    def __init__(
        self,
        consumer: str,
        read: Callable[[Any], CloudEvent],
        handle: Callable[[CloudEvent], Awaitable[func.HttpResponse]],
    ) -> None:
        """``read`` raises DeliveryRejected, ``handle`` whatever a consumer raises."""
        self._consumer = consumer
        self._read = read
        self._handle = handle
        self._told: list[dict[str, Any]] = []
        self._retry_after: float | None = None

    async def answered(self, encoded: Sequence[Any]) -> func.HttpResponse:
        """Handle the events one after the other, and answer for all of them.

        Not all at once: events of one thing are in order here, and one request does not take the
        whole host. When the store is down the rest is left for the next time.
        """
        store_is_down = False
        for index, each in enumerate(encoded):
            told: dict[str, Any] = {"index": index}
            self._told.append(told)
            if store_is_down:
                self._tell(told, problem(503, "store-unavailable", _NOT_TRIED, retry_after=5))
                continue
            try:
                event = self._read(each)
                told |= {"source": event.source, "id": event.id}
                answer = await self._handle(event)
            except Exception as error:  # noqa: BLE001 - one event must not take the others with it
                store_is_down = isinstance(error, StoreUnavailable)
                answer = refusal(error, self._consumer)
                if not isinstance(error, IdempotencyError):
                    self._retry_after = max(self._retry_after or 0, 5)
            self._tell(told, answer)
        return self._answer()

    def _tell(self, told: dict[str, Any], answer: func.HttpResponse) -> None:
        told["status"] = answer.status_code
        if answer.status_code == _DONE:
            return
        said = json.loads(answer.get_body())
        told |= {"type": said["type"], "detail": said["detail"]}
        if wait := answer.headers.get("Retry-After"):
            self._retry_after = max(self._retry_after or 0, float(wait))

    def _answer(self) -> func.HttpResponse:
        failed = sum(told["status"] != _DONE for told in self._told)
        if not failed:
            body = json.dumps({"events": self._told})
            return func.HttpResponse(body, mimetype="application/json")
        detail = f"{failed} of {len(self._told)} events were not processed"
        if self._retry_after is None:
            return problem(422, "events-failed", detail, events=self._told)
        return problem(
            503, "events-failed", detail, retry_after=self._retry_after, events=self._told
        )
