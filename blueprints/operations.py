"""What operators and clients ask of the app itself."""

import json
from importlib.metadata import version

import azure.functions as func

from bootstrap import App
from shared.idempotency.triggers.problems import TYPES

_DISTRIBUTIONS = (
    "azure-functions",
    "azure-data-tables",
    "azure-cosmos",
    "azure-servicebus",
    "msgspec",
)


def register(app: func.FunctionApp, parts: App) -> None:
    """Register what needs no connection."""

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
