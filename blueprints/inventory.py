"""Inventory: stock levels as the warehouses report them, idempotent by nature."""

import json

import azure.functions as func

from bootstrap import App
from shared.idempotency import StoreUnavailable, apply_if_newer
from shared.idempotency.triggers import service_bus
from shared.idempotency.triggers.problems import problem
from shared.inventory import StockLevel, stock_id
from shared.orders import parsed


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    if not parts.settings.service_bus:
        return

    @app.function_name("stock_level_changed")
    @app.service_bus_queue_trigger(
        arg_name="message",
        queue_name=parts.settings.stock_queue,
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(
        parts.guard("stock_level_changed", parts.stores.stock_levels),
        settlement=parts.settlement,
        fingerprint=None,  # there is no record to compare with
        pacing=parts.settings.pacing,
    )
    async def stock_level_changed(message: func.ServiceBusMessage) -> None:
        apply_if_newer(parsed(message.get_body(), StockLevel).state())

    @app.function_name("get_stock_level")
    @app.route(
        route="stock/{warehouse}/{sku}",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    async def get_stock_level(request: func.HttpRequest) -> func.HttpResponse:
        place = request.route_params
        try:
            stored = await parts.stores.stock_levels.read(
                stock_id(place["warehouse"], place["sku"])
            )
        except StoreUnavailable as error:
            return problem(503, "store-unavailable", str(error), retry_after=error.retry_after or 5)
        if stored is None:
            return problem(404, "not-found", "no level of this article was reported there")
        return func.HttpResponse(json.dumps(stored.document), mimetype="application/json")
