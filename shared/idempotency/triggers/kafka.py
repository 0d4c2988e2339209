"""The Kafka trigger, in batches: records of one partition -> deliveries; see `stream` for the rest.

The trigger's ``data_type`` is BINARY: as text the host hands over an envelope of its own in place of the
body. A record without a value (a tombstone) cannot be read by the SDK, which refuses its batch each time:
keep such topics away. The trigger runs on Flex Consumption, Premium and Dedicated plans.
"""

import base64
import binascii
import typing
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

import azure.functions as func

from ..clock import Clock, SystemClock
from ..fingerprint import Fingerprint, canonical_json
from ..protected import Protected
from .event_hubs import position_of, tries_before
from .protecting import Handler
from .stream import EventKey, SetAside, Stream, StreamEvent

type Decorator = Callable[[Callable[..., Any]], Callable[..., Coroutine[Any, Any, None]]]


def idempotent(
    consumer: Protected,
    *,
    key: EventKey,
    set_aside: SetAside,
    fingerprint: Fingerprint | None = canonical_json,
    tries: int = 5,
    concurrency: int = 16,
    clock: Clock | None = None,
) -> Decorator:
    """Protect a handler of single records behind a Kafka trigger of ``cardinality`` many.

    All as with `event_hubs.idempotent`; a line is Kafka's message key, a property its header.
    """
    stream = Stream(
        consumer, key, set_aside, fingerprint, clock or SystemClock(),
        trigger="kafka", tries=tries, concurrency=concurrency,
    )  # fmt: skip

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, StreamEvent)
        codec = handler.codec()

        async def protected(events: Sequence[func.KafkaEvent], context: func.Context) -> None:
            await stream.handled(
                [_event_of(event) for event in events],
                lambda event: handler.work((event,), {}),
                codec,
                tried=tries_before(context),
            )

        return handler.expose_instead(
            protected,
            events=typing.List[func.KafkaEvent],  # noqa: UP006 - all that the worker knows
            context=func.Context,
            returns=None,
        )

    return protect


def _event_of(event: func.KafkaEvent) -> StreamEvent:
    return StreamEvent(
        body=event.get_body(),
        position=position_of(event.topic, event.partition, event.offset),
        line=event.key or None,
        properties=_headers(event.headers),
        sent_at=_sent_at(event.timestamp),
    )


def _headers(headers: Any) -> dict[str, Any]:
    """The headers by name, as text; the host hands over their values in base64. The last of a name counts."""
    told: dict[str, Any] = {}
    for header in headers or ():
        try:
            told[str(header["Key"])] = base64.b64decode(header["Value"], validate=True).decode()
        except (KeyError, TypeError, ValueError, binascii.Error):
            continue  # one that cannot be read is none
    return told


def _sent_at(timestamp: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
