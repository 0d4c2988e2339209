"""Payments: customers are charged for the orders they place."""

import azure.functions as func

from bootstrap import App
from shared.idempotency.triggers import service_bus
from shared.order_events import OrderEvent
from shared.orders import parsed
from shared.payments import Receipt, charge_order


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    if not parts.settings.service_bus or parts.payments is None:
        return
    consumer, provider = parts.payments

    @app.function_name("charge_payment")
    @app.service_bus_topic_trigger(
        arg_name="message",
        topic_name=parts.settings.order_events_topic,
        subscription_name=parts.settings.payments_subscription,
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(consumer, settlement=parts.settlement, pacing=parts.settings.pacing)
    async def charge_payment(message: func.ServiceBusMessage) -> Receipt | None:
        return await charge_order(parsed(message.get_body(), OrderEvent), provider)
