"""Payments: customers are charged for the orders they place."""

import azure.functions as func

from bootstrap import App
from shared.idempotency import Effects, Reconcile
from shared.idempotency.triggers import service_bus
from shared.order_events import OrderEvent
from shared.orders import parsed
from shared.payments import PaymentProvider, Receipt, charge_order


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    chosen = parts.settings.payments
    if not parts.settings.service_bus or chosen is None:
        return
    provider = PaymentProvider(chosen.url, timeout=chosen.timeout)
    # A charge in doubt is looked up, and made again only if the provider does not know of it; under the
    # same key, so that one which lands after all is found to be the same.
    effects = Effects(policy=Reconcile(provider.reconcile), settle=chosen.settle)
    consumer = parts.consumer("charge_payment", effects=effects)

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
