"""The description of the HTTP interface, for people and tools."""

import json

import azure.functions as func

from bootstrap import App
from shared.openapi import document


def register(app: func.FunctionApp, parts: App) -> None:
    """Register the document of the routes that are there with these connections."""
    described = document(
        service_bus=parts.settings.service_bus is not None, webhooks=parts.settings.takes_webhooks
    )
    body = json.dumps(described).encode()

    @app.function_name("openapi")
    @app.route(
        route="openapi.json",
        trigger_arg_name="request",
        methods=["GET"],
        auth_level=func.AuthLevel.ANONYMOUS,
    )
    async def openapi(request: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse(body, mimetype="application/json")
