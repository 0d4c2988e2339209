"""Fulfilment: an order, its lines, its reservations and its event, in one transaction."""

import azure.functions as func

from bootstrap import App
from shared.fulfilment import FulfilmentRequest, fulfil
from shared.idempotency import TransientFailure, current_attempt, current_unit
from shared.idempotency.keys import storage_id
from shared.idempotency.triggers import service_bus
from shared.order_events import order_fulfilled
from shared.orders import check_key, parsed


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    if not parts.settings.service_bus:
        return

    @app.function_name("fulfil_order")
    @app.service_bus_queue_trigger(
        arg_name="message",
        queue_name=parts.settings.fulfilment_queue,
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(
        parts.inbox("fulfil_order"), settlement=parts.settlement, pacing=parts.settings.pacing
    )
    async def fulfil_order(message: func.ServiceBusMessage) -> None:
        await fulfil_in_unit(message.get_body(), parts.settings.order_events_topic)


async def fulfil_in_unit(body: bytes, events_topic: str) -> None:
    """Fulfil the order that a message names, and tell of it; comes back while there is no such order."""
    request = parsed(body, FulfilmentRequest)
    attempt = current_attempt()
    check_key(request.order_id, attempt.key)
    unit = current_unit()
    order = await unit.read(storage_id(request.order_id))
    if order is None:
        raise TransientFailure("there is no such order, or not yet")
    document = fulfil(order, request, unit, suffix=attempt.owner)
    unit.create(
        f"fulfilled-{attempt.owner}",
        {"type": "journal", "effect": "fulfilled", "order_id": request.order_id},
    )
    order_fulfilled(document).send_by(unit, events_topic)
