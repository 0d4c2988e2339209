"""Timelines: the events of each order, consumed in order by a subscription with sessions."""

import json

import azure.functions as func

from blueprints import streams
from bootstrap import App
from shared.idempotency import StoreUnavailable, VersionGuard, apply_if_newer
from shared.idempotency.triggers import service_bus
from shared.idempotency.triggers.in_order import InOrder
from shared.idempotency.triggers.problems import problem
from shared.order_events import OrderEvent
from shared.orders import parsed
from shared.timelines import with_event


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    # one consumer whatever brings an event in: it is told once
    consumer = parts.guard("order_timeline", parts.stores.timelines)
    if parts.settings.service_bus:
        _register_service_bus(app, parts, consumer)
    streams.register(app, parts, consumer)
    _register_http(app, parts)


def _register_service_bus(app: func.FunctionApp, parts: App, consumer: VersionGuard) -> None:
    @app.function_name("order_timeline")
    @app.service_bus_topic_trigger(
        arg_name="message",
        topic_name=parts.settings.order_events_topic,
        subscription_name=parts.settings.timeline_subscription,
        connection="ServiceBusConnection",
        is_sessions_enabled=True,
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(
        consumer,
        settlement=InOrder(parts.settlement),
        fingerprint=None,  # there is no record to compare with
        pacing=parts.settings.pacing,
    )
    async def order_timeline(message: func.ServiceBusMessage) -> None:
        apply_if_newer(with_event(parsed(message.get_body(), OrderEvent)))


def _register_http(app: func.FunctionApp, parts: App) -> None:
    @app.function_name("get_order_timeline")
    @app.route(
        route="orders/{order_id}/timeline",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    async def get_order_timeline(request: func.HttpRequest) -> func.HttpResponse:
        try:
            stored = await parts.stores.timelines.read(request.route_params["order_id"])
        except StoreUnavailable as error:
            return problem(503, "store-unavailable", str(error), retry_after=error.retry_after or 5)
        if stored is None:
            return problem(404, "not-found", "nothing has happened to this order, or not yet")
        return func.HttpResponse(json.dumps(stored.document), mimetype="application/json")
