"""Auditing: every event of every order is kept, many of them at a time."""

import azure.functions as func

from bootstrap import App
from shared.audit import audit
from shared.idempotency.triggers import service_bus_batch
from shared.idempotency.triggers.body_keys import json_key

BATCH_LOCK = 60.0
"""Seconds; the lock duration of the subscription in the entity file and in infra/."""


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose connections are configured."""
    if not parts.settings.service_bus:
        return

    @app.function_name("audit_orders")
    @app.service_bus_topic_trigger(
        arg_name="messages",
        topic_name=parts.settings.order_events_topic,
        subscription_name=parts.settings.audit_subscription,
        connection="ServiceBusConnection",
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
        auto_complete_messages=parts.settlement.auto_complete,
    )
    @service_bus_batch.idempotent(
        parts.inbox("audit_orders", parts.stores.ledgers, entity_is_marker=True),
        key=json_key("source", "id"),
        settlement=parts.settlement,
        lock=BATCH_LOCK,
        pacing=parts.settings.pacing,
    )
    async def audit_orders(message: func.ServiceBusMessage) -> None:
        audit(message.get_body())
