"""With the deployed settings the app signs in as its own identity; nothing else has to be told."""

import asyncio
import json
import time
from typing import Any

import pytest

from local.deployment import infra
from local.deployment.infra import CLIENT_ID
from shared import clients

LONGEST = 10.0


@pytest.mark.parametrize("scope", ["https://storage.azure.com/.default"])
async def test_the_clients_credential_asks_for_the_identity_the_deployment_names(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the endpoint that Azure gives every app instance for its identities."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        token = {"access_token": "a-token", "expires_on": str(int(time.time()) + 3600)}
        body = json.dumps({**token, "resource": "r", "token_type": "Bearer"}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for name, value in infra.app_settings("table").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{port}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "secret-of-the-instance")
    clients.identity.cache_clear()
    credential: Any = clients.identity()
    try:
        token = await asyncio.wait_for(credential.get_token(scope), LONGEST)
    finally:
        await credential.close()
        clients.identity.cache_clear()
        server.close()
        await server.wait_closed()

    assert token.token == "a-token"
    [request] = asked
    assert f"client_id={CLIENT_ID}" in request
    assert "resource=https" in request


def test_application_insights_is_written_to_by_the_identity_the_deployment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker configures the exporter without a credential: it has to find the identity itself."""
    from azure.identity import ManagedIdentityCredential
    from azure.monitor.opentelemetry.exporter import AzureMonitorTraceExporter

    settings = infra.app_settings("table")
    monkeypatch.setenv("APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL", "true")
    name = "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"
    monkeypatch.setenv(name, settings[name])

    exporter = AzureMonitorTraceExporter(
        connection_string=settings["APPLICATIONINSIGHTS_CONNECTION_STRING"],
        disable_offline_storage=True,
    )
    try:
        credential: Any = exporter._credential
        assert isinstance(credential, ManagedIdentityCredential)
        assert CLIENT_ID in str(vars(credential)) or CLIENT_ID in str(vars(credential._credential))
    finally:
        exporter.shutdown()
