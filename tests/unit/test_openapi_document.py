"""The OpenAPI document is true: it describes the routes that the app registers, no more and no less."""

import json
import runpy
from pathlib import Path
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency.triggers.problems import TYPES
from shared.openapi import document
from tests.triggers.webhook_sender import a_secret

ROOT = Path(__file__).parents[2]
BUS = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"


def routes(monkeypatch: pytest.MonkeyPatch, **settings: str) -> dict[tuple[str, str], str]:
    """The routes of function_app.py with these settings, as (method, path), and who may call them."""
    defaults = {"AzureWebJobsStorage": "UseDevelopmentStorage=true", "IDEMPOTENCY_STORE": "table",
                "ServiceBusConnection": "", "PAYMENT_WEBHOOK_SECRETS": ""}  # fmt: skip
    for name, value in {**defaults, **settings}.items():
        monkeypatch.setenv(name, value)
    app: func.FunctionApp = runpy.run_path(str(ROOT / "function_app.py"))["app"]
    found = {}
    for function in app.get_functions():
        registered = function.get_trigger()
        assert registered is not None
        trigger = registered.get_dict_repr()
        if trigger["type"] == "httpTrigger" and str(trigger["authLevel"]) != "ADMIN":
            for method in trigger["methods"]:
                found[str(method).lower(), f"/{trigger['route']}"] = str(trigger["authLevel"])
    return found


def described(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (method, path): "ANONYMOUS" if operation.get("security") == [] else "FUNCTION"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


@pytest.mark.parametrize(("service_bus", "webhooks"), [(False, False), (True, False), (True, True)])
def test_what_is_described_is_what_there_is_and_is_open_to_those_it_says(
    service_bus: bool, webhooks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A route that is missing here is added to shared/openapi.py; operators' own (ADMIN) are not."""
    settings = {"ServiceBusConnection": BUS} if service_bus else {}
    if webhooks:
        settings["PAYMENT_WEBHOOK_SECRETS"] = a_secret()
    there = routes(monkeypatch, **settings)
    assert described(document(service_bus=service_bus, webhooks=webhooks)) == there


def test_every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() -> None:
    whole = document(service_bus=True, webhooks=True)
    text = json.dumps(whole)
    schemas = whole["components"]["schemas"]
    for name in schemas:
        assert f'"#/components/schemas/{name}"' in text, f"{name} is not used"
    used = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used == schemas.keys()
    names = [op["operationId"] for ops in whole["paths"].values() for op in ops.values()]
    assert len(names) == len({*names})


def test_every_problem_type_is_described_and_explained() -> None:
    whole = document(service_bus=True, webhooks=True)
    types = whole["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]
    assert types == [f"/api/problems#{name}" for name in TYPES]
    assert all(TYPES.values())
