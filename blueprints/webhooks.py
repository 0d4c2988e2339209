"""Webhooks: the payment provider tells what became of a charge."""

import functools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import azure.functions as func

from bootstrap import App
from shared.idempotency import ConfigurationError, Consumer, Outcome, VersionGuard
from shared.idempotency.entities import EntityStates
from shared.idempotency.triggers import webhooks
from shared.idempotency.triggers.standard_webhooks import StandardWebhooks
from shared.orders import parsed
from shared.webhooks import PaymentEvent

LARGEST_REQUEST = 64 * 1024
"""Bytes; Standard Webhooks asks senders to stay below 20 KB."""
_REPEATED_FOR = 4 * 24 * 3600.0
"""Seconds, rounded up."""


class PaymentWebhook(NamedTuple):
    """What the function is made of."""

    verifier: StandardWebhooks
    consumer: Consumer
    order_payment: VersionGuard
    send_fulfilment: Callable[[str], Awaitable[None]]


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the function where the provider's secret is known and there is a queue to go on with.

    Raises ConfigurationError for a secret that is none, and when records go before the provider stops
    repeating its webhooks.
    """
    if parts.settings.takes_webhooks:
        register_webhook(app, _payment_webhook(parts))


def _payment_webhook(parts: App) -> PaymentWebhook:
    settings = parts.settings
    if settings.policy.retention < _REPEATED_FOR:
        raise ConfigurationError(
            f"app setting IDEMPOTENCY_RETENTION_DAYS is {settings.policy.retention / 86400:g}, but "
            "webhooks are repeated for 75 hours: keep their records for 4 days at least"
        )
    try:
        verifier = StandardWebhooks(settings.webhook_secrets)
    except ConfigurationError as error:
        raise ConfigurationError(f"app setting PAYMENT_WEBHOOK_SECRETS: {error}") from error
    return PaymentWebhook(
        verifier,
        parts.consumer("payment_webhook"),
        parts.guard("order_payment", EntityStates(parts.stores.orders)),
        functools.partial(parts.queues.send_fulfilment, settings.fulfilment_queue),
    )


def register_webhook(app: func.FunctionApp, webhook: PaymentWebhook) -> None:
    """Register the function over its parts."""
    verifier, consumer, order_payment, send_fulfilment = webhook

    @app.function_name("payment_webhook")
    @app.route(
        route="webhooks/payments",
        trigger_arg_name="request",
        methods=["POST"],
        auth_level=func.AuthLevel.ANONYMOUS,  # the signature says who sends
    )
    @webhooks.idempotent(consumer, verifier, largest_body=LARGEST_REQUEST)
    async def payment_webhook(request: func.HttpRequest) -> None:
        await take_payment_event(request.get_body(), order_payment, send_fulfilment)


async def take_payment_event(
    body: bytes, order_payment: VersionGuard, send_fulfilment: Callable[[str], Awaitable[None]]
) -> None:
    """Note on its order what became of a charge, and ask for the fulfilment of one that is paid."""
    change = parsed(body, PaymentEvent).change()
    if change is None:
        return
    outcome = await order_payment.apply(change.state())
    if change.is_paid and outcome is not Outcome.STALE:
        # after a crash before this the webhook comes again, finds the order paid, and sends:
        # twice at worst, under one MessageId
        await send_fulfilment(change.charge.reference)
