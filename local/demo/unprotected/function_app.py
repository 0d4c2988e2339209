"""The same orders as they are often handled: read the message, write, call, return.

Nothing here asks whether the message was handled before. The demo runs it with the host, broker,
store and settings of the protected app, to show what that costs.
"""

import contextlib
import functools
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

import azure.functions as func
import httpx
import msgspec
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosResourceExistsError
from azure.data.tables import TableServiceClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from shared.order_events import OrderEvent, order_placed
from shared.orders import Order, parsed
from shared.settings import Settings

type Write = Callable[[str, dict[str, Any]], object]

settings = Settings.read(os.environ)
app = func.FunctionApp()


def to_table() -> Write:
    """Upsert into the table of orders; what is no scalar becomes JSON text."""
    service = TableServiceClient.from_connection_string(settings.tables.connection_string or "")
    table = service.create_table_if_not_exists(settings.orders_name)

    def write(id_: str, document: dict[str, Any]) -> object:
        scalars = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in document.items()
        }
        keys = {"PartitionKey": document["order_id"], "RowKey": id_}
        return table.upsert_entity({**scalars, **keys})

    return write


def to_cosmos() -> Write:
    """Upsert into the container of orders."""
    connection = settings.cosmos.connection_string if settings.cosmos else None
    client = CosmosClient.from_connection_string(
        connection or "",
        connection_verify=settings.cosmos_verify_tls,
        enable_endpoint_discovery=settings.cosmos_verify_tls,
    )
    # another consumer may be first between the look and the making
    with contextlib.suppress(CosmosResourceExistsError):
        client.create_database_if_not_exists(settings.cosmos_database)
    database = client.get_database_client(settings.cosmos_database)
    with contextlib.suppress(CosmosResourceExistsError):
        database.create_container_if_not_exists(settings.orders_name, PartitionKey("/order_id"))
    container = database.get_container_client(settings.orders_name)
    return lambda id_, document: container.upsert_item({"id": id_, **document})


@functools.cache
def service_bus() -> ServiceBusClient:
    """The one connection for sending, opened by the first message."""
    connection = settings.service_bus.connection_string if settings.service_bus else None
    return ServiceBusClient.from_connection_string(connection or "")


@functools.cache
def sender() -> ServiceBusSender:
    return service_bus().get_queue_sender(settings.orders_queue)


@functools.cache
def events() -> ServiceBusSender:
    return service_bus().get_topic_sender(settings.order_events_topic)


publishing = threading.Lock()  # a sender is not safe for concurrent use


write = to_cosmos() if settings.store == "cosmos" else to_table()


def place_order(body: bytes) -> None:
    """Write the order, and a line into its journal: once for each time this runs."""
    order = parsed(body, Order)
    write(order.order_id, order.document())
    line = {"type": "journal", "effect": "placed", "order_id": order.order_id}
    write(f"placed-{uuid.uuid4().hex}", line)
    event = order_placed(order.document())
    with publishing:
        events().send_messages(ServiceBusMessage(event.encoded(), session_id=event.subject))
    logging.info("process_order %r: processed", order.order_id)


@app.function_name("process_order")
@app.service_bus_queue_trigger(
    arg_name="message", queue_name="%ORDERS_QUEUE%", connection="ServiceBusConnection"
)
def process_order(message: func.ServiceBusMessage) -> None:
    place_order(message.get_body())


@app.function_name("process_order_from_storage_queue")
@app.queue_trigger(
    arg_name="message", queue_name="%ORDERS_STORAGE_QUEUE%", connection="AzureWebJobsStorage"
)
def process_order_from_storage_queue(message: func.QueueMessage) -> None:
    place_order(message.get_body())


@app.function_name("charge_payment")
@app.service_bus_topic_trigger(
    arg_name="message",
    topic_name=settings.order_events_topic,
    subscription_name=settings.payments_subscription,
    connection="ServiceBusConnection",
)
def charge_payment(message: func.ServiceBusMessage) -> None:
    """Charge the customer; when that fails the message comes again, and it is tried again."""
    event = parsed(message.get_body(), OrderEvent)
    assert settings.payments  # noqa: S101 - the demo sets it
    charge = {
        "customer_id": event.data["customer_id"],
        "amount": event.data["total"],
        "currency": event.data["currency"],
        "reference": event.subject,
    }
    url, timeout = f"{settings.payments.url}/v1/charges", settings.payments.timeout
    httpx.post(url, json=charge, timeout=timeout).raise_for_status()


@app.function_name("submit_order")
@app.route(route="orders", trigger_arg_name="request", methods=["POST"])
def submit_order(request: func.HttpRequest) -> func.HttpResponse:
    order = parsed(request.get_body(), Order)
    sender().send_messages(ServiceBusMessage(msgspec.json.encode(order)))
    return func.HttpResponse(json.dumps({"order_id": order.order_id}), status_code=202)
