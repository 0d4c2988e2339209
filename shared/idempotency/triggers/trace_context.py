"""The trace context a message carries."""

import re

_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_parent(value: object) -> str | None:
    """``value`` if it is a W3C traceparent: anything else a sender wrote there is not kept."""
    if isinstance(value, str) and _TRACE_PARENT.fullmatch(value):
        return value
    return None
