"""Who sends a request: what scopes an Idempotency-Key, so that no one meets another's answers."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import azure.functions as func
import msgspec

from ..errors import MalformedContent

type Caller = Callable[[func.HttpRequest], str]
"""Tells who sends a request: a stable text for the same caller, never an address."""

_IDENTIFYING = (
    "http://schemas.microsoft.com/identity/claims/objectidentifier",
    "oid",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier",
    "sub",
)
"""Claims that name one principal for good, the most certain first; names and addresses may change."""


def caller_of(request: func.HttpRequest) -> str:
    """The principal that App Service authenticated, or the function key, or "anonymous".

    Only for an app behind App Service authentication, which sets the principal's headers itself and
    takes them from nobody else. Without it anybody could send them: `function_key_caller` is for
    that. Raises MalformedContent when there is a principal that cannot be read.
    """
    return _principal(request) or function_key_caller(request)


def function_key_caller(request: func.HttpRequest) -> str:
    """The function key a request was let in with, as its hash, or "anonymous".

    A key that is renewed makes another caller: until the old requests are answered, renew one key and
    keep the other.
    """
    function_key = request.headers.get("x-functions-key") or request.params.get("code")
    if function_key:
        return "function-key:" + digest(function_key)[:32]
    return "anonymous"


def _principal(request: func.HttpRequest) -> str | None:
    provider = request.headers.get("x-ms-client-principal-idp", "")
    name = request.headers.get("x-ms-client-principal-id")
    if not name:
        encoded = request.headers.get("x-ms-client-principal")
        if not encoded:
            return None
        provider, name = _decoded(encoded)
    return f"principal:{provider}:{name}"


def _decoded(encoded: str) -> tuple[str, str]:
    """Provider and identity in a principal as App Service or Static Web Apps writes it."""
    try:
        # padding may be missing; b64decode takes more of it than needed
        principal = msgspec.json.decode(base64.b64decode(encoded + "=="))
        provider = principal.get("auth_typ") or principal.get("identityProvider") or ""
        name = principal.get("userId") or _claimed(principal.get("claims", []))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        name = None
    if not (isinstance(name, str) and name and isinstance(provider, str)):
        raise MalformedContent(
            "the header x-ms-client-principal names nobody", reason="UnreadablePrincipal"
        )
    return provider, name


def _claimed(claims: list[dict[str, Any]]) -> str | None:
    values = {claim["typ"]: claim["val"] for claim in claims}
    return next((values[name] for name in _IDENTIFYING if values.get(name)), None)


def digest(text: str) -> str:
    """SHA-256 of any text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
