"""HTTP requests: who sends what, under which Idempotency-Key."""

import re
from urllib.parse import parse_qsl, urlsplit

import azure.functions as func

from ..errors import InvalidKey, MissingKey
from ..keys import joined
from ..records import Delivery
from .callers import Caller, caller_of, digest
from .http_content import content_digest
from .trace_context import trace_parent

_LONGEST_KEY = 255
_LONGEST_SCOPE_PART = 256
"""Bytes."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")


def idempotency_key_of(request: func.HttpRequest) -> str:
    """The Idempotency-Key of a request, quoted (as the draft wants it) or bare (as clients send it).

    Raises MissingKey or InvalidKey: 1 to 255 characters of printable ASCII, without a comma unless they
    are quoted. The host joins several headers by commas: a bare one could be two keys.
    """
    value = (request.headers.get("Idempotency-Key") or "").strip()
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise InvalidKey("the Idempotency-Key begins with a quote but is not one quoted string")
        value = _ESCAPED.sub(r"\1", quoted[1])
    elif "," in value:
        raise InvalidKey(
            "several Idempotency-Key headers, or a comma in one: send one; a key with a comma in quotes"
        )
    if not value:
        raise MissingKey(
            "the request needs an Idempotency-Key header: 1 to 255 printable characters"
        )
    if len(value) > _LONGEST_KEY or not all(" " <= character <= "~" for character in value):
        raise InvalidKey("the Idempotency-Key must be 1 to 255 characters of printable ASCII")
    return value


def has_idempotency_key(request: func.HttpRequest) -> bool:
    """Whether a request has the header at all; one that is empty counts, and is refused later."""
    return request.headers.get("Idempotency-Key") is not None


def to_delivery(request: func.HttpRequest, caller: Caller = caller_of) -> Delivery:
    """What the consumer needs to know of a request; raises MissingKey or InvalidKey."""
    url = urlsplit(request.url)
    scope = (_bounded(caller(request)), request.method, _bounded(url.path or "/"))
    return Delivery(
        key=joined(*scope, idempotency_key_of(request)),
        fingerprint=_fingerprint(request, url.path, url.query),
        trigger="http",
        trace_parent=trace_parent(request.headers.get("traceparent")),
    )


def _bounded(part: str) -> str:
    """A long path must not make the key too long: the client is not to blame for it."""
    size = len(part.encode("utf-8", "surrogatepass"))
    return part if size <= _LONGEST_SCOPE_PART else "sha256:" + digest(part)


def _fingerprint(request: func.HttpRequest, path: str, query: str) -> str:
    content = content_digest(request.get_body(), request.headers.get("Content-Type") or "")
    # repeated parameters stand in the URL only; `code` is the function key, which may be rotated
    parameters = parse_qsl(query, keep_blank_values=True) or list(request.params.items())
    named = sorted((p for p in parameters if p[0] != "code"), key=lambda parameter: parameter[0])
    return "http2:" + digest(ascii((request.method, path, named, content)))
