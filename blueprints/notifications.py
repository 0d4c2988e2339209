"""Notifications: what others are told of an order, each by a subscription of its own."""

import azure.functions as func

from bootstrap import App
from shared.idempotency import Effects, Rerun
from shared.idempotency.triggers import service_bus
from shared.loyalty import credit, key_of, partition_of
from shared.mail import KEYS_KNOWN_FOR, Mail, MailProvider, confirm_order
from shared.order_events import OrderEvent
from shared.orders import parsed


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    if not parts.settings.service_bus:
        return
    _register_loyalty(app, parts)
    if parts.settings.mail is not None:
        _register_mail(
            app, parts, MailProvider(parts.settings.mail.url, timeout=parts.settings.mail.timeout)
        )


def _register_loyalty(app: func.FunctionApp, parts: App) -> None:
    consumer = parts.inbox("loyalty_points", parts.stores.ledgers, partition=partition_of)

    @app.function_name("loyalty_points")
    @app.service_bus_topic_trigger(
        arg_name="message",
        topic_name=parts.settings.order_events_topic,
        subscription_name=parts.settings.loyalty_subscription,
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(
        consumer, settlement=parts.settlement, key=key_of, pacing=parts.settings.pacing
    )
    async def loyalty_points(message: func.ServiceBusMessage) -> None:
        await credit(message.get_body())


def _register_mail(app: func.FunctionApp, parts: App, provider: MailProvider) -> None:
    # A mail cannot be looked up. One in doubt is sent again under its key for as long as the provider
    # knows that; later it is for a person to decide.
    effects = Effects(policy=Rerun(provider_key_retention=KEYS_KNOWN_FOR))
    consumer = parts.consumer("email_confirmation", effects=effects)

    @app.function_name("email_confirmation")
    @app.service_bus_topic_trigger(
        arg_name="message",
        topic_name=parts.settings.order_events_topic,
        subscription_name=parts.settings.email_subscription,
        connection="ServiceBusConnection",
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus.idempotent(consumer, settlement=parts.settlement, pacing=parts.settings.pacing)
    async def email_confirmation(message: func.ServiceBusMessage) -> Mail | None:
        return await confirm_order(parsed(message.get_body(), OrderEvent), provider)
