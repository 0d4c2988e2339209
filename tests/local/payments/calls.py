"""How the tests call the provider: as any program would, over HTTP."""

import ssl
from typing import Any

import httpx

from local.payments import PaymentProvider

PATIENCE = 5.0  # seconds; only a broken test waits so long
HASTE = 0.3  # seconds; tests of time-outs do wait so long


def order(reference: str = "o-7", **changes: Any) -> dict[str, Any]:
    """A charge that is in order, but for the changes."""
    body = {"customer_id": "c-1", "amount": "12.50", "currency": "EUR", "reference": reference}
    return body | changes


class Caller:
    """A client of one provider.

    timeout: seconds it waits for an answer.
    """

    def __init__(self, provider: PaymentProvider, timeout: float = PATIENCE) -> None:
        # Loading the certificates of the world takes longer than all the rest of a test.
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.http = httpx.Client(
            base_url=provider.url,
            timeout=httpx.Timeout(PATIENCE, read=timeout),
            trust_env=False,
            verify=no_certificates,
        )

    def charge(self, key: str | None = None, **changes: Any) -> httpx.Response:
        return self.http.post("/v1/charges", json=order(**changes), headers=_headers(key))

    def send(self, body: bytes) -> httpx.Response:
        return self.http.post("/v1/charges", content=body)

    def search(self, **question: str) -> httpx.Response:
        return self.http.get("/v1/charges", params=question)


def code(response: httpx.Response) -> str:
    """What a refusal is called; it must be problem+json."""
    assert response.headers["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    return str(body["code"])


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}
