"""Batches of Event Hubs and Kafka in the shapes in which Azure's host hands them to the worker.

No service runs here that the host could pump from: these feed tests.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .protos import Message, TypedData

_ENQUEUED = datetime(2026, 1, 1, tzinfo=UTC)


def event_hub_batch(
    events: Sequence[Mapping[str, Any]], *, partition: str = "0", first: int = 1
) -> tuple[TypedData, dict[str, Any]]:
    """Events of one partition, `first` being the sequence number of the first of them.

    events: each with `body`, and `partition_key` and `properties` where it has them.
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
        "PartitionContext": {"PartitionId": partition},
        "PropertiesArray": [dict(event.get("properties", {})) for event in events],
        "SystemPropertiesArray": system,
    }
    bodies = [str(event["body"]) for event in events]
    return TypedData(collection_string=Message(string=bodies)), metadata


def kafka_batch(
    events: Sequence[Mapping[str, Any]],
    *,
    topic: str = "order-events",
    partition: int = 0,
    first: int = 0,
) -> tuple[TypedData, dict[str, Any]]:
    """Records of one partition, `first` being the offset of the first of them.

    events: each with `body`, and `key` and `headers` where it has them.
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
    bodies = [str(event["body"]) for event in events]
    return TypedData(collection_string=Message(string=bodies)), metadata


def rabbitmq_message(body: str) -> tuple[TypedData, dict[str, Any]]:
    """A body; the trigger hands over nothing else."""
    return TypedData(string=body), {}
