"""What operators and clients ask of the app itself."""

import json
import logging
import time
from importlib.metadata import version

import azure.functions as func

from bootstrap import App
from shared.idempotency import Outbox, StoreUnavailable, Swept
from shared.idempotency.events import UpkeepRan
from shared.idempotency.triggers.problems import TYPES, problem

_log = logging.getLogger(__name__)
_DISTRIBUTIONS = (
    "azure-functions",
    "azure-data-tables",
    "azure-cosmos",
    "azure-servicebus",
    "msgspec",
)


def register(app: func.FunctionApp, parts: App) -> None:
    """Register what needs no connection, and the sweeper of the outbox where there is one."""
    if parts.outbox:
        _register_sweeper(app, parts, parts.outbox)

    @app.function_name("health")
    @app.route(
        route="health",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.ANONYMOUS,
    )
    async def health(request: func.HttpRequest) -> func.HttpResponse:
        settings = parts.settings
        body = {
            "status": "ok",
            "store": settings.store,
            "service_bus": settings.service_bus is not None,
            "settlement": settings.settlement,
            "telemetry": settings.telemetry is not None,
            "policy": {
                "lease": settings.policy.lease,
                "wait": settings.policy.wait,
                "deadline": settings.policy.deadline,
                "retention": settings.policy.retention,
            },
            "versions": {name: version(name) for name in _DISTRIBUTIONS},
        }
        return func.HttpResponse(json.dumps(body), mimetype="application/json")

    # with a key: nobody unknown makes the store work, or learns how it is
    @app.function_name("store_health")
    @app.route(
        route="health/store",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
    )
    async def store_health(request: func.HttpRequest) -> func.HttpResponse:
        """One point read of a record that is not there; a store's calls end within seconds."""
        began = time.monotonic()
        try:
            await parts.stores.records.read("health", "health")
        except StoreUnavailable as error:
            return problem(503, "store-unavailable", str(error), retry_after=error.retry_after or 5)
        body = {"status": "ok", "seconds": round(time.monotonic() - began, 3)}
        return func.HttpResponse(json.dumps(body), mimetype="application/json")

    # the same slot to every instance: the host elects one
    @app.function_name("purge_expired")
    @app.timer_trigger(arg_name="timer", schedule=parts.settings.operations.purge_schedule)
    async def purge_expired(timer: func.TimerRequest) -> None:
        await parts.check_retention()
        await parts.upkeep.run()

    @app.function_name("problems")
    @app.route(
        route="problems",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.ANONYMOUS,
    )
    async def problems(request: func.HttpRequest) -> func.HttpResponse:
        retention = parts.settings.policy.retention / 86400
        lines = [
            "# Why a request was refused",
            "",
            f"An Idempotency-Key is remembered for {retention:g} days after its request finished. Within "
            "that time it stands for that one request; afterwards it may be used for a new one.",
            *(f"\n## {name}\n\n{meaning}" for name, meaning in TYPES.items()),
        ]
        return func.HttpResponse("\n".join(lines) + "\n", mimetype="text/markdown")


def _register_sweeper(app: func.FunctionApp, parts: App, outbox: Outbox) -> None:
    @app.function_name("sweep_outbox")
    @app.timer_trigger(arg_name="timer", schedule=parts.settings.outbox_sweep_schedule)
    async def sweep_outbox(timer: func.TimerRequest) -> None:
        """Send what a process committed and did not send. Any number may run at the same time."""
        began = time.monotonic()
        result, items = "failed", 0
        try:
            swept = await outbox.sweep()
            result, items = ("partial" if swept.left else "done"), swept.relayed
        finally:
            duration = time.monotonic() - began
            parts.observer(UpkeepRan(job="sweep", result=result, items=items, duration=duration))
        if swept != Swept():
            _log.info("sweep_outbox: %s", swept)
