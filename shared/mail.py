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
"""Seconds for which the provider recognises an Idempotency-Key.

Many providers know no such key. With one of those there is no number to put here: use Quarantine, which
never sends a second mail, or math.inf where a second one is the lesser evil.
"""
_REFUSED: Final = {400, 413, 422}
"""Answers that say no to this very mail, and always will."""
_UNCLEAR: Final = {408, 409, 425}
"""Answers that leave open what became of it: the first request with its key may still run."""


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
        for now, or does not let us in: nothing was sent. After anything else (httpx.HTTPError, a 503
        too, which may come from a proxy that had passed it on) nobody knows.
        """
        body = {"to": customer_id, "subject": subject, "text": text}
        answer = await self._connected().post("/v1/mails", json=body)
        told = f"the mail provider answered {answer.status_code}"
        if answer.status_code in _REFUSED:
            raise PermanentFailure("MailRefused", told)
        if answer.is_client_error and answer.status_code not in _UNCLEAR:
            wait = answer.headers.get("Retry-After", "")
            raise TransientFailure(told, retry_after=float(wait) if wait.isdecimal() else None)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=Mail)

    async def close(self) -> None:
        """Let go of connections; the next mail makes new ones."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

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
