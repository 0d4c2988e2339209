"""Keys for the services we call: the same for every try at one step, different for any other.

The provider deduplicates by it as we deduplicate by ours. `send_headers` (for httpx.AsyncClient) and
`set_headers` (for httpx.Client, or as `auth=`) put it on every request made inside a step:

    httpx.AsyncClient(event_hooks={"request": [send_headers]})
"""

import hashlib
import sys
import uuid
from contextvars import ContextVar
from typing import Any, Final

import msgspec

KEY_HEADER: Final = "Idempotency-Key"
TRACE_HEADER: Final = "traceparent"


def downstream_uuid(consumer: str, key: str, step: str) -> uuid.UUID:
    """The key of a step as a UUID (version 8: a digest of our own)."""
    digest = hashlib.sha256(b"downstream 1")
    for part in (consumer, key, step):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    bits = int.from_bytes(digest.digest()[:16])
    bits = bits & ~(0xF << 76) | 0x8 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=bits)


class StepCall(msgspec.Struct, frozen=True):
    """The call of a step, as seen by what sends its requests."""

    key: str
    trace_parent: str | None


# A context variable: it reaches tasks and threads begun inside the call, and nothing else.
_current: ContextVar[StepCall | None] = ContextVar("idempotency_step", default=None)


def enter_call(call: StepCall) -> None:
    """Make ``call`` the one whose headers the calling task sends."""
    _current.set(call)


def current_key() -> str | None:
    """The downstream key of the step whose call this is; None outside one."""
    call = _current.get()
    return None if call is None else call.key


def set_headers(request: Any) -> Any:
    """Put the current step's `Idempotency-Key` and `traceparent` on an httpx request.

    Headers that the caller set stay. Outside a step (a reconciliation, another handler) there is no
    key: nothing is set.
    """
    call = _current.get()
    if call is not None:
        request.headers.setdefault(KEY_HEADER, call.key)
        trace_parent = _span_in_progress() or call.trace_parent
        if trace_parent is not None:
            request.headers.setdefault(TRACE_HEADER, trace_parent)
    return request


async def send_headers(request: Any) -> None:
    """`set_headers` as an event hook of httpx.AsyncClient."""
    set_headers(request)


def _span_in_progress() -> str | None:
    """The current OpenTelemetry span as a traceparent, where there is one."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier.get(TRACE_HEADER)
