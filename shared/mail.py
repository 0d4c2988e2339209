"""Mail: customers are told that their order has arrived, through a mail provider's HTTP interface."""

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from .idempotency import PermanentFailure, TransientFailure, current_attempt, send_headers
from .order_events import ORDER_PLACED, OrderEvent

if TYPE_CHECKING:
    import httpx

CONFIRMATION: Final = "confirmation"
"""The step's name, and with it part of the key that the provider knows a mail by."""
KEYS_KNOWN_FOR: Final = 24 * 3600.0
"""Seconds for which the provider recognises an Idempotency-Key."""
_NOT_NOW: Final = (429, 503)


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of a mail that it has taken."""

    mail_id: str


class MailProvider:
    """The provider's HTTP interface; its client is made at the first mail and kept."""

    def __init__(self, url: str, *, timeout: float) -> None:
        """``timeout``: seconds for one mail as a whole."""
        self.timeout = timeout
        self._url = url
        self._client: httpx.AsyncClient | None = None

    async def send(self, customer_id: str, subject: str, text: str) -> Mail:
        """Have one mail sent, under the step's key.

        Raises PermanentFailure when the provider refuses it for good and TransientFailure when it does
        for now: nothing was sent. After anything else (httpx.HTTPError) nobody knows.
        """
        body = {"to": customer_id, "subject": subject, "text": text}
        answer = await self._connected().post("/v1/mails", json=body)
        if answer.status_code in _NOT_NOW:
            raise TransientFailure(f"the mail provider answered {answer.status_code}")
        if answer.is_client_error:
            raise PermanentFailure(
                "MailRefused", f"the mail provider answered {answer.status_code}"
            )
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=Mail)

    def _connected(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                base_url=self._url,
                timeout=self.timeout,
                event_hooks={"request": [send_headers]},
            )
        return self._client


async def confirm_order(event: OrderEvent, provider: MailProvider) -> Mail | None:
    """Tell a customer of an order that was placed; None where there is nobody or nothing to tell."""
    attempt = current_attempt()
    customer = event.data.get("customer_id")
    if event.type != ORDER_PLACED or not isinstance(customer, str):
        attempt.rule_out_effects()
        return None
    text = f"We have received your order {event.subject}."
    send = functools.partial(provider.send, customer, "Your order", text)
    return await attempt.step(
        CONFIRMATION, send, deadline=provider.timeout, last=True, result_type=Mail
    )
