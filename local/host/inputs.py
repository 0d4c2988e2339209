"""Trigger data and metadata in the shapes in which Azure's host hands them to the worker.

Each builder returns `(data, metadata)`, to be passed on to `Worker.invoke`. The host uses them for
real messages; tests use them to invoke an app without any service.
"""

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .protos import Message, TypedData, http_data, strings, text_or_bytes
from .streams import event_hub_batch, kafka_batch, rabbitmq_message

Input = tuple[TypedData, dict[str, Any]]


def service_bus_message(
    body: bytes | str = b"",
    *,
    message_id: str | None = None,
    delivery_count: int = 1,
    lock_token: str | None = None,
    sequence_number: int = 1,
    enqueued_time: datetime | None = None,
    expires_at: datetime | None = None,
    correlation_id: str | None = None,
    content_type: str | None = None,
    subject: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
    partition_key: str | None = None,
    session_id: str | None = None,
    reply_to_session_id: str | None = None,
    dead_letter_source: str | None = None,
    application_properties: Mapping[Any, Any] | None = None,
    binary: bool = False,
) -> Input:
    """One message. `delivery_count` is 1 in the first delivery; `binary` hands text as bytes."""
    enqueued = enqueued_time or datetime.now(UTC)
    properties = json_properties(application_properties or {})
    metadata = {
        "MessageId": message_id,
        "DeliveryCount": delivery_count,
        "LockToken": lock_token or str(uuid.uuid4()),
        "SequenceNumber": sequence_number,
        "EnqueuedTimeUtc": utc(enqueued),
        "ExpiresAtUtc": utc(expires_at or enqueued + timedelta(days=14)),
        "CorrelationId": correlation_id,
        "ContentType": content_type,
        "Subject": subject,
        "Label": subject,
        "To": to,
        "ReplyTo": reply_to,
        "PartitionKey": partition_key,
        "SessionId": session_id,
        "ReplyToSessionId": reply_to_session_id,
        "DeadLetterSource": dead_letter_source,
        # Never left out: the SDK cannot decode a message without them.
        "ApplicationProperties": properties,
        "UserProperties": properties,
    }
    raw = body.encode() if isinstance(body, str) else body
    data = TypedData(bytes=raw) if binary else text_or_bytes(raw)
    return data, {name: value for name, value in metadata.items() if value is not None}


def service_bus_batch(messages: Sequence[Input], *, data_type: str = "string") -> Input:
    """Several messages for a function of cardinality many.

    Hazards, kept as in Azure's host. Arrays of texts lose their null and empty entries, so an array
    in which one message has no value no longer lines up with the others. `data_type` is the trigger's:
    of "string" the bodies are such an array; of "binary" every body is there, unchanged; of anything
    else the host parses them as JSON and writes them anew, and one that is none raises ValueError, with
    which the host fails the whole batch before the worker hears of it.
    """

    def column(name: str) -> list[Any]:
        return [metadata.get(name) for _, metadata in messages]

    texts = ("MessageId", "LockToken", "CorrelationId", "ContentType", "Subject", "Label", "To")
    more_texts = ("ReplyTo", "PartitionKey", "SessionId", "ReplyToSessionId", "DeadLetterSource")
    others = ("DeliveryCount", "EnqueuedTimeUtc", "ExpiresAtUtc", "SequenceNumber")
    properties = ("ApplicationProperties", "UserProperties")
    metadata: dict[str, Any] = {
        **{f"{name}Array": strings(column(name)) for name in texts + more_texts},
        **{f"{name}Array": column(name) for name in others + properties},
    }
    bodies = [_bytes_of(data) for data, _ in messages]
    match data_type.lower():
        case "binary":
            return TypedData(collection_bytes=Message(bytes=bodies)), metadata
        case "string":
            return strings(body.decode("utf-8", "replace") for body in bodies), metadata
        case _:
            parsed = [json.loads(body) if body else None for body in bodies]
            return TypedData(json=json.dumps(parsed)), metadata


def _bytes_of(body: TypedData) -> bytes:
    return bytes(body.bytes) if "bytes" in body.__dict__ else str(body.string).encode()


def http_request(
    method: str = "GET",
    url: str = "http://localhost/api",
    *,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    body: bytes | str = b"",
) -> Input:
    """One HTTP request; `params` are the values of the route, the query is taken from the URL."""
    raw = body.encode() if isinstance(body, str) else body
    query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    return http_data(method, url, lowered, query, params or {}, raw), {}


def queue_message(
    body: bytes | str,
    *,
    message_id: str | None = None,
    dequeue_count: int = 1,
    insertion_time: datetime | None = None,
    expiration_time: datetime | None = None,
    next_visible_time: datetime | None = None,
    pop_receipt: str = "AgAAAAMAAAAAAAAA",
) -> Input:
    """One Storage queue message, decoded."""
    inserted = insertion_time or datetime.now(UTC)
    data = text_or_bytes(body.encode() if isinstance(body, str) else body)
    return data, {
        "QueueTrigger": data,
        "Id": message_id or str(uuid.uuid4()),
        "DequeueCount": dequeue_count,
        "InsertionTime": utc(inserted),
        "ExpirationTime": utc(expiration_time or inserted + timedelta(days=7)),
        "NextVisibleTime": utc(next_visible_time or inserted + timedelta(minutes=10)),
        "PopReceipt": pop_receipt,
    }


def timer_info(
    *,
    past_due: bool = False,
    last: datetime | None = None,
    next_time: datetime | None = None,
    monitored: bool = True,
) -> Input:
    """One run of a timer.

    `next_time` is the slot that is due in a scheduled run, the one that was missed in a late run, and
    the one to come in a run out of turn. `last` is when the run before began. Without `monitored`
    there is no status, as where the trigger's `useMonitor` is off.
    """
    never = "0001-01-01T00:00:00"
    slots = {
        "Last": utc(last) if last else never,
        "Next": utc(next_time) if next_time else never,
        "LastUpdated": utc(last) if last else never,
    }
    info = {
        "Schedule": {"AdjustForDST": True},
        "ScheduleStatus": slots if monitored else None,
        "IsPastDue": past_due,
    }
    return TypedData(json=json.dumps(info)), {}


BUILDERS: Mapping[str, Callable[..., Input]] = {
    "serviceBusTrigger": service_bus_message,
    "httpTrigger": http_request,
    "queueTrigger": queue_message,
    "timerTrigger": timer_info,
    "eventHubTrigger": event_hub_batch,
    "kafkaTrigger": kafka_batch,
    "rabbitMQTrigger": rabbitmq_message,
}


def utc(moment: datetime) -> str:
    """The moment as Azure's host writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def json_properties(properties: Mapping[Any, Any]) -> dict[str, Any]:
    """Application properties in JSON: the AMQP client hands names and texts out as bytes."""
    return {_text(name): _json_value(value) for name, value in properties.items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return base64.b64encode(value).decode("ascii")
        case datetime():
            return utc(value)
        case _:
            return str(value)
