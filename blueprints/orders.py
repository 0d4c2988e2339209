"""Orders: submitted over HTTP, queued, made into one document each."""

import functools
import json
from urllib.parse import quote

import azure.functions as func
import msgspec

from bootstrap import App
from shared.idempotency import Inbox, StoreUnavailable, current_attempt, current_unit
from shared.idempotency.documents import business_of
from shared.idempotency.keys import storage_id
from shared.idempotency.triggers import http, service_bus, storage_queue
from shared.idempotency.triggers.problems import problem
from shared.order_events import order_placed
from shared.orders import Order, SubmittedOrder, changed_fields, check_key, parsed

LARGEST_REQUEST = {"table": 30_000, "cosmos": 192 * 1024}
"""Bytes, by store: an order must fit into what keeps it (64 KiB of UTF-16 in a property of a table) and
into a Service Bus message of the standard tier (256 KB), before it is accepted."""


def place_order(body: bytes, events_topic: str | None) -> None:
    """Make the order's document, which is its own marker, a line in the order's journal, and its event.

    All are in one transaction with nothing else; the journal is append-only, one line per effect. The
    event goes to the topic once the transaction is committed; without one, nothing is published.
    """
    order = parsed(body, Order)
    attempt = current_attempt()
    check_key(order.order_id, attempt.key)
    document = order.document()
    unit = current_unit()
    unit.mark(document)
    unit.create(
        f"placed-{attempt.owner}",
        {"type": "journal", "effect": "placed", "order_id": order.order_id},
    )
    if events_topic is not None:
        order_placed(document).send_by(unit, events_topic)


def register(app: func.FunctionApp, parts: App) -> Inbox:
    """Register the functions whose connections are configured.

    The consumer of orders, for others that bring orders in.
    """
    # one consumer whatever brings an order in: its id is the key everywhere
    consumer = parts.inbox("process_order", entity_is_marker=True, changed_fields=changed_fields)
    if parts.settings.service_bus:
        _register_service_bus(app, parts, consumer)
    _register_storage_queue(app, parts, consumer)
    _register_http(app, parts)
    return consumer


def events_topic(parts: App) -> str | None:
    """Where orders' events go; None without Service Bus."""
    return parts.settings.order_events_topic if parts.outbox else None


def _register_service_bus(app: func.FunctionApp, parts: App, consumer: Inbox) -> None:
    topic = events_topic(parts)

    @app.function_name("process_order")
    @app.service_bus_queue_trigger(
        arg_name="message",
        queue_name="%ORDERS_QUEUE%",
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(consumer, settlement=parts.settlement, pacing=parts.settings.pacing)
    async def process_order(message: func.ServiceBusMessage) -> None:
        place_order(message.get_body(), topic)


def _register_storage_queue(app: func.FunctionApp, parts: App, consumer: Inbox) -> None:
    topic = events_topic(parts)
    queue = parts.settings.orders_storage_queue

    @app.function_name("process_order_from_storage_queue")
    @app.queue_trigger(
        arg_name="message", queue_name="%ORDERS_STORAGE_QUEUE%", connection="AzureWebJobsStorage"
    )
    @storage_queue.idempotent(
        consumer,
        key=storage_queue.json_key("order_id"),
        poison_queue=functools.partial(parts.storage_queues.set_aside, queue),
        pacing=parts.settings.pacing,
    )
    async def process_order_from_storage_queue(message: func.QueueMessage) -> None:
        place_order(message.get_body(), topic)


def _register_http(app: func.FunctionApp, parts: App) -> None:
    # nothing here deploys App Service authentication: anybody could send its headers
    caller = http.function_key_caller
    consumer = parts.consumer("submit_order", reusable_keys=True)

    @app.function_name("submit_order")
    @app.route(
        route="orders",
        trigger_arg_name="request",
        methods=["POST"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    @http.idempotent(consumer, caller=caller, largest_body=LARGEST_REQUEST[parts.settings.store])
    async def submit_order(request: func.HttpRequest) -> func.HttpResponse:
        submitted = parsed(request.get_body(), SubmittedOrder)
        order = submitted.named(caller(request), http.idempotency_key_of(request))
        await parts.send_order(order.order_id, msgspec.json.encode(order))
        return func.HttpResponse(
            json.dumps({"order_id": order.order_id, "status": "accepted"}),
            status_code=202,
            headers={"Location": f"/api/orders/{quote(order.order_id, safe='')}"},
            mimetype="application/json",
        )

    @app.function_name("get_order")
    @app.route(
        route="orders/{order_id}",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    async def get_order(request: func.HttpRequest) -> func.HttpResponse:
        order_id = request.route_params["order_id"]
        try:
            found = await parts.stores.orders.read(order_id, storage_id(order_id))
        except StoreUnavailable as error:
            return problem(503, "store-unavailable", str(error), retry_after=error.retry_after or 5)
        order = None if found is None else business_of(found.document)
        if order is None:
            return problem(404, "not-found", "there is no order of this id, or not yet")
        return func.HttpResponse(json.dumps(order), mimetype="application/json")
