"""Signatures as Standard Webhooks has them: HMAC-SHA256 over `id.timestamp.body`, five minutes of tolerance.

The only file that needs the package `standardwebhooks`.
"""

import binascii
from collections.abc import Sequence

from standardwebhooks import Webhook, WebhookVerificationError

from ..errors import ConfigurationError
from .webhooks import SignatureInvalid

_LEAST_SECRET, _LARGEST_SECRET = 24, 64
"""Bytes, as the specification has them."""


class StandardWebhooks:
    """Verifies requests against several secrets: while one is exchanged for another, both count."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """``secrets`` in base64, with or without `whsec_` before it; raises ConfigurationError."""
        if not secrets:
            raise ConfigurationError("a webhook needs at least one secret")
        self._webhooks = [_webhook(secret, number) for number, secret in enumerate(secrets, 1)]

    def verify(self, body: bytes, headers: dict[str, str]) -> str:
        """The `webhook-id` of a request that one of the secrets has signed.

        ``headers`` has lower-case names. Raises SignatureInvalid, for whatever is wrong with it.
        """
        for webhook in self._webhooks:
            try:
                webhook.verify(body, headers, json_parse=False)
            except (WebhookVerificationError, ValueError):  # what cannot even be read is not signed
                continue
            return headers["webhook-id"]
        raise SignatureInvalid


def _webhook(secret: str, number: int) -> Webhook:
    """Its errors tell which secret is wrong, and never the secret."""
    try:
        key = binascii.a2b_base64(secret.removeprefix("whsec_") + "==", strict_mode=False)
    except binascii.Error:
        raise ConfigurationError(f"webhook secret {number} is not base64") from None
    if not _LEAST_SECRET <= len(key) <= _LARGEST_SECRET:
        raise ConfigurationError(
            f"webhook secret {number} has {len(key)} bytes; it must have {_LEAST_SECRET} to "
            f"{_LARGEST_SECRET}"
        )
    return Webhook(key)
