"""How long the app takes to be imported, over the SDKs that it cannot avoid, in fresh processes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from .frame import Figures, in_turn, seconds_of

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "AzureWebJobsStorage": "UseDevelopmentStorage=true",
    "ServiceBusConnection": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "",
    "PAYMENT_PROVIDER_URL": "https://provider.example",
}
# What the app imports at its start because its stores and triggers are made of it.
SDKS = (
    "import azure.functions, azure.data.tables.aio, msgspec, opentelemetry.metrics, opentelemetry.trace, "
    "azurefunctions.extensions.bindings.servicebus, azure.core.pipeline.transport._aiohttp"
)


def measure(*, quick: bool, told: Callable[[str], None]) -> Figures:
    """Medians of whole processes; an interpreter that imports nothing is taken off both."""
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)}

    def process(code: str) -> Callable[[], float]:
        return lambda: seconds_of([sys.executable, "-c", code], environment) * 1000

    found = in_turn(
        {
            "an interpreter": process("pass"),
            "the SDKs alone": process(SDKS),
            "the app": process("import function_app"),
        },
        rounds=1 if quick else 9,
        unit="ms",
        told=told,
    )
    bare = found["an interpreter"].median
    ratio = round((found["the app"].median - bare) / (found["the SDKs alone"].median - bare), 2)
    name = "the app over the SDKs"
    return Figures("Cold start", found, {name: ratio}, {name: "<= 1.15"}, [f"the SDKs: `{SDKS}`"])
