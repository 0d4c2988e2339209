"""The files in infra/, and the app settings they give the app."""

import re
from pathlib import Path
from typing import Any

from .bicep import BicepFile

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"

CLIENT_ID = "11111111-2222-3333-4444-555555555555"

_EXAMPLES = {
    "name": "func-example",
    "identityClientId": CLIENT_ID,
    "storageAccountName": "stexample",
    "serviceBusFullyQualifiedNamespace": "sb-example.servicebus.windows.net",
    "cosmosEndpoint": "https://cosmos-example.documents.azure.com:443/",
    "keyVaultName": "kv-example",
    "paymentProviderUrl": "https://payments.example.com",
    "mailProviderUrl": "https://mails.example.com",
    "applicationInsightsConnectionString": "InstrumentationKey=00000000-0000-0000-0000-000000000000",
}
"""What the app's module is given from the others, as a deployment would fill it in."""


def read(area: str) -> BicepFile:
    """One file of infra/, by its name without the ending."""
    return BicepFile.read(INFRA / f"{area}.bicep")


def read_all() -> list[BicepFile]:
    """Every file of infra/."""
    return [BicepFile.read(path) for path in sorted(INFRA.glob("*.bicep"))]


def app_settings(store: str) -> dict[str, str]:
    """The app settings that a deployment with this store sets, addresses by example."""
    file = BicepFile.read(INFRA / "app.bicep", {**_EXAMPLES, "store": store})
    [settings] = [each for each in file.resources if each.body["name"] == "appsettings"]
    values: dict[str, Any] = settings.body["properties"]
    if unknown := [name for name, value in values.items() if not isinstance(value, str)]:
        raise ValueError(f"app.bicep: no text is known for {', '.join(unknown)}")
    return values


def filled_in(text: str, settings: dict[str, str]) -> str:
    """A binding's text with each ``%NAME%`` replaced by that setting. Raises KeyError without it."""
    return re.sub(r"%(\w+)%", lambda name: settings[name[1]], text)
