"""A sender of webhooks: requests signed with the library that a sender would use."""

import base64
from datetime import UTC, datetime, timedelta

from azure.functions import HttpRequest
from standardwebhooks import Webhook

URL = "https://shop.example/api/webhooks/payments"


def a_secret(letter: str = "a", size: int = 32) -> str:
    return "whsec_" + base64.b64encode(letter.encode() * size).decode()


def signed_headers(
    body: bytes,
    event_id: str = "msg-1",
    *,
    secrets: tuple[str, ...] = (a_secret(),),
    age: timedelta = timedelta(),
) -> dict[str, str]:
    """The headers of an event that was sent ``age`` ago."""
    at = datetime.now(UTC) - age
    signatures = [Webhook(s).sign(event_id, at, body.decode()) for s in secrets]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def signed(body: bytes = b'{"n": 1}', event_id: str = "msg-1", **how: object) -> HttpRequest:
    headers = signed_headers(body, event_id, **how)  # type: ignore[arg-type]
    return HttpRequest("POST", URL, headers=headers, body=body)
