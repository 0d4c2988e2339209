"""Order status: reported in CloudEvents, over HTTP or by Event Grid, and kept if it is newer."""

import functools

import azure.functions as func

from bootstrap import App
from shared.idempotency import apply_if_newer
from shared.idempotency.entities import EntityStates
from shared.idempotency.triggers import cloud_events, event_grid
from shared.idempotency.triggers.cloud_event import CloudEvent
from shared.order_status import status_of


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    consumer = parts.guard("order_status_changed", EntityStates(parts.stores.orders))

    @app.function_name("order_status_changed")
    @app.route(
        route="events/order-status",
        trigger_arg_name="request",
        methods=["POST", "OPTIONS"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    @cloud_events.idempotent(consumer, origins=parts.settings.event_origins)
    async def order_status_changed(event: CloudEvent) -> None:
        apply_if_newer(status_of(event))

    if not parts.settings.service_bus:
        return  # there would be no place for what can never be handled

    set_aside = functools.partial(parts.queues.quarantine_event, parts.settings.quarantine_queue)

    @app.function_name("order_status_changed_from_event_grid")
    @app.event_grid_trigger(arg_name="event")
    @event_grid.idempotent(consumer, set_aside=set_aside)
    async def order_status_changed_from_event_grid(event: CloudEvent) -> None:
        apply_if_newer(status_of(event))
