"""Batches of Event Hubs and Kafka in the shapes in which Azure's host hands them to the worker.

No service runs here that the host could pump from: these feed tests.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .protos import Message, TypedData, strings

_ENQUEUED = datetime(2026, 1, 1, tzinfo=UTC)


def event_hub_batch(
    events: Sequence[Mapping[str, Any]],
    *,
    hub: str | None = "order-events",
    partition: str | None = "0",
    first: int = 1,
    binary: bool = False,
) -> tuple[TypedData, dict[str, Any]]:
    """Events of one partition, `first` being the sequence number of the first of them.

    events: each with `body`, and `partition_key` and `properties` where it has them.
    `binary`: what the trigger's `dataType` asks for.
    """
    system = [
        {
            "SequenceNumber": first + index,
            "Offset": str(100 * (first + index)),
            "PartitionKey": event.get("partition_key"),
            "EnqueuedTimeUtc": event.get("enqueued_time", _ENQUEUED.isoformat()),
        }
        for index, event in enumerate(events)
    ]
    metadata = {
        "PartitionContext": {"EventHubName": hub, "PartitionId": partition},
        "PropertiesArray": [dict(event.get("properties", {})) for event in events],
        "SystemPropertiesArray": system,
    }
    bodies = [_body(event) for event in events]
    return _bodies(bodies) if binary else strings(map(_text, bodies)), metadata


def kafka_batch(
    events: Sequence[Mapping[str, Any]],
    *,
    topic: str = "order-events",
    partition: int = 0,
    first: int = 0,
    binary: bool = False,
) -> tuple[TypedData, dict[str, Any]]:
    """Records of one partition, `first` being the offset of the first of them.

    events: each with `body`, and `key` and `headers` where it has them. Unless `binary`, as the
    trigger's `dataType` may ask for, the host hands over an envelope around each.
    """

    def headers(event: Mapping[str, Any]) -> list[dict[str, str]]:
        told: Mapping[str, str] = event.get("headers", {})
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in told.items()}
        return [{"Key": name, "Value": value} for name, value in encoded.items()]

    offsets = [first + index for index in range(len(events))]
    metadata = {
        "TimestampArray": [_ENQUEUED.isoformat() for _ in events],
        "KeyArray": [event.get("key") for event in events],
        "PartitionArray": [partition for _ in events],
        "OffsetArray": TypedData(collection_sint64=Message(sint64=offsets)),
        "TopicArray": TypedData(collection_string=Message(string=[topic for _ in events])),
        "HeadersArray": TypedData(json=json.dumps([headers(event) for event in events])),
    }
    bodies = [_body(event) for event in events]
    if binary:
        return _bodies(bodies), metadata
    envelopes = [
        json.dumps({"Offset": offset, "Partition": partition, "Topic": topic, "Value": _text(body)})
        for offset, body in zip(offsets, bodies, strict=True)
    ]
    return strings(envelopes), metadata


def rabbitmq_message(
    body: bytes | str, *, binary: bool = False
) -> tuple[TypedData, dict[str, Any]]:
    """A body; the trigger hands over nothing else."""
    raw = body.encode() if isinstance(body, str) else body
    return TypedData(bytes=raw) if binary else TypedData(string=_text(raw)), {}


def _body(event: Mapping[str, Any]) -> bytes | None:
    """The body of an event: text, bytes as `local.host.invoke` is given them, or none."""
    match event["body"]:
        case str() as text:
            return text.encode()
        case {"base64": str() as encoded}:
            return base64.b64decode(encoded)
        case _:
            return None


def _text(body: bytes | None) -> str | None:
    """Text, in which the host changes what is no UTF-8."""
    return None if body is None else body.decode("utf-8", "replace")


def _bodies(bodies: Sequence[bytes | None]) -> TypedData:
    """Bodies as they are. Hazard, as in Azure's host: those that are null are left out."""
    there = [body for body in bodies if body is not None]
    return TypedData(collection_bytes=Message(bytes=there))
