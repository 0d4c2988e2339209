"""The Event Hubs trigger, in batches: events of one partition -> deliveries; see `stream` for the rest.

The trigger's ``data_type`` is BINARY. As text the host drops empty bodies, upon which the SDK refuses the
batch each time: the partition would stand still. Bodies that are no UTF-8 it changes.
"""

import json
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import azure.functions as func

from ..clock import Clock, SystemClock
from ..fingerprint import Fingerprint, canonical_json
from ..protected import Protected
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
    """Protect a handler of single events behind an Event Hubs trigger of ``cardinality`` many.

    The handler takes one StreamEvent, and nothing else. The trigger's ``arg_name`` is ``events``. The
    function needs a retry policy without an end, else the host drops what fails. ``tries``: after how many
    of the batch an event whose handler raises what nobody expected is set aside. ``concurrency``: how many
    lines (partition keys) are handled at the same time.
    """
    stream = Stream(
        consumer, key, set_aside, fingerprint, clock or SystemClock(),
        trigger="event_hubs", tries=tries, concurrency=concurrency,
    )  # fmt: skip

    def protect(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
        handler = Handler(function, StreamEvent)
        codec = handler.codec()

        async def protected(events: Sequence[func.EventHubEvent], context: func.Context) -> None:
            await stream.handled(
                events_of(events),
                lambda event: handler.work((event,), {}),
                codec,
                tried=tries_before(context),
            )

        return handler.expose_instead(
            protected,
            events=typing.List[func.EventHubEvent],  # noqa: UP006 - all that the worker knows
            context=func.Context,
            returns=None,
        )

    return protect


def tries_before(context: func.Context | None) -> int:
    """How often the host's retry policy has run this batch before."""
    retry = context.retry_context if context is not None else None
    count = retry.retry_count if retry is not None else 0
    return count or 0


def events_of(batch: Sequence[func.EventHubEvent]) -> list[StreamEvent]:
    """A batch's events, each with its own entry of the metadata, which is the whole batch's."""
    if not batch:
        return []
    metadata = batch[0].metadata or {}
    properties = _parsed(metadata.get("PropertiesArray"), [])
    if len(properties) != len(batch):
        properties = [{}] * len(batch)  # rather none than another event's
    place = _parsed(metadata.get("PartitionContext"), {})
    log = place.get("EventHubName"), place.get("PartitionId")
    return [
        StreamEvent(
            body=event.get_body(),
            position=position_of(*log, event.sequence_number),
            line=event.partition_key or None,
            properties=own or {},
            sent_at=event.enqueued_time.timestamp() if event.enqueued_time else None,
        )
        for event, own in zip(batch, properties, strict=True)
    ]


def position_of(*parts: object) -> str | None:
    """Where an event lies; a part that is not known would make two places one."""
    return None if None in parts else "/".join(map(str, parts))


def _parsed(value: Any, default: Any) -> Any:
    parsed = json.loads(value) if isinstance(value, str) else value
    return parsed if isinstance(parsed, list | Mapping) else default
