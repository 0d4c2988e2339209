"""What type checkers make of a protected function: it keeps its parameters, and is asynchronous."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

import azure.functions as func

from shared.idempotency import Consumer, MissingKey, idempotent
from shared.idempotency.triggers import http, service_bus, storage_queue
from shared.idempotency.triggers.service_bus import Settlement


@dataclass(frozen=True)
class Order:
    order_id: str
    total: Decimal


def order_id(order: Order, points: int = 0) -> str:
    return order.order_id


async def any_function_keeps_its_parameters_and_its_result(consumer: Consumer) -> None:
    @idempotent(consumer, key=order_id)
    async def credit(order: Order, points: int = 0) -> Decimal:
        return order.total + points

    @idempotent(consumer, key=order_id, content=None, wait=0)
    def debit(order: Order, *, points: int) -> Decimal | None:
        return order.total - points

    order = Order("o-1", Decimal(1))
    assert_type(await credit(order), Decimal)
    assert_type(await credit(order, points=3), Decimal)
    assert_type(await debit(order, points=3), Decimal | None)
    await credit("o-1")  # type: ignore[arg-type]
    await credit(order, coins=3)  # type: ignore[call-arg]
    await debit(order)  # type: ignore[call-arg]


async def a_message_handler_keeps_its_parameters_and_returns_nothing(
    consumer: Consumer, settlement: Settlement, poison: storage_queue.PoisonQueue
) -> None:
    @service_bus.idempotent(consumer, settlement=settlement)
    async def process(message: func.ServiceBusMessage, context: func.Context) -> Decimal:
        return Decimal(1)

    @storage_queue.idempotent(consumer, key=storage_queue.json_key("id"), poison_queue=poison)
    def dequeue(message: func.QueueMessage) -> None: ...

    queue_handler: Callable[[func.QueueMessage], Coroutine[Any, Any, None]] = dequeue
    await queue_handler(func.QueueMessage())
    await process(func.ServiceBusMessage())  # type: ignore[call-arg]
    await dequeue(func.ServiceBusMessage())  # type: ignore[arg-type]


async def an_http_handler_returns_a_response(consumer: Consumer) -> None:
    @http.idempotent(consumer)
    async def submit(request: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse()

    @http.idempotent(consumer, required=False)
    def submit_in_a_thread(request: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse()

    request = func.HttpRequest(method="POST", url="/", body=b"")
    assert_type(await submit(request), func.HttpResponse)
    assert_type(await submit_in_a_thread(request), func.HttpResponse)

    @http.idempotent(consumer)  # type: ignore[arg-type]
    async def answers_text(request: func.HttpRequest) -> str:
        return "no response"

    assert_type(await answers_text(request), func.HttpResponse)


async def a_key_that_may_be_missing_is_taken(consumer: Consumer) -> None:
    def key(order: Order) -> str | None:
        return order.order_id or None

    @idempotent(consumer, key=key)
    async def credit(order: Order) -> None: ...

    try:
        await credit(Order("", Decimal(1)))
    except MissingKey as error:
        assert_type(error.reason, str)
