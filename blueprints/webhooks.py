"""Webhooks: the payment provider tells what became of a charge."""

import azure.functions as func

from bootstrap import App
from shared.idempotency import Outcome
from shared.idempotency.triggers import webhooks
from shared.orders import parsed
from shared.webhooks import PaymentEvent

LARGEST_REQUEST = 64 * 1024
"""Bytes; Standard Webhooks asks senders to stay below 20 KB."""


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the functions whose secrets and connections are configured."""
    if parts.webhooks is None:
        return
    verifier, consumer, order_payment, send_fulfilment = parts.webhooks

    @app.function_name("payment_webhook")
    @app.route(
        route="webhooks/payments",
        trigger_arg_name="request",
        methods=["POST"],
        auth_level=func.AuthLevel.ANONYMOUS,  # the signature says who sends
    )
    @webhooks.idempotent(consumer, verifier, largest_body=LARGEST_REQUEST)
    async def payment_webhook(request: func.HttpRequest) -> None:
        change = parsed(request.get_body(), PaymentEvent).change()
        if change is None:
            return
        outcome = await order_payment.apply(change.state())
        if change.is_paid and outcome is not Outcome.STALE:
            # after a crash before this the webhook comes again, finds the order paid, and sends:
            # twice at worst, under one MessageId
            await send_fulfilment(change.charge.reference)
