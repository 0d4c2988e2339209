"""Settlement: once a day, what was paid the day before is told to the payment provider."""

import logging

import azure.functions as func

from bootstrap import App
from shared.idempotency import Effects, Reconcile
from shared.idempotency.triggers import timer
from shared.idempotency.triggers.timer import Slot
from shared.payments import PaymentProvider
from shared.settlement import DaySettled, day_before, name_of_day, settle_day

_DAYS_MADE_UP_FOR = 7

_log = logging.getLogger(__name__)


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the function, where there is a provider."""
    chosen = parts.settings.payments
    if chosen is None:
        return
    provider = PaymentProvider(chosen.url, timeout=chosen.timeout)
    # A settlement in doubt is looked up by its key, and sent again only if the provider does not know it.
    effects = Effects(policy=Reconcile(provider.reconcile_settlement), settle=chosen.settle)
    consumer = parts.consumer("daily_settlement", effects=effects)
    schedule = parts.settings.settlement_schedule

    @app.function_name("daily_settlement")
    @app.timer_trigger(arg_name="timer", schedule=schedule)
    # by the host, in its memory; what is still not done then is made up for by the next day's run
    @app.retry(strategy="fixed_delay", max_retry_count="5", delay_interval="00:01:00")
    @timer.idempotent(consumer, schedule=schedule, catch_up=_DAYS_MADE_UP_FOR, name_of=name_of_day)
    async def daily_settlement(slot: Slot) -> DaySettled:
        settled = await settle_day(day_before(slot.due), parts.stores.paid_orders, provider)
        _log.info(
            "daily_settlement %s: settled in %s",
            settled.day,
            ", ".join(settled.settlements) or "no currency: nothing was paid",
        )
        return settled
