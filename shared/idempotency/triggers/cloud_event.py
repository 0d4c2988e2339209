"""A CloudEvent, whatever brought it: over HTTP in any mode, in Event Grid's own schema, or by its trigger.

`source` and `id` identify an event: together they are its key. The package `cloudevents` is not used: it
has no batch mode, and rounds numbers.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import azure.functions as func
import msgspec

from ..errors import MalformedContent
from ..fingerprint import canonical_json, raw_bytes
from ..keys import joined
from ..records import Delivery
from .trace_context import trace_parent

_ATTRIBUTES: Final = frozenset(
    {"id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
)
_NOT_EXTENSIONS: Final = _ATTRIBUTES | {"specversion", "data", "data_base64"}
_EXTENSION = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
_JSON = re.compile(r"(?:.+/(?:.+\+)?)json", re.ASCII | re.IGNORECASE)


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, of version 1.0 of the specification.

    ``data`` are the bytes it would have in binary mode: JSON text where the content type is JSON, which
    it is when left out. ``extensions`` holds the attributes that the specification does not know.
    """

    id: str
    source: str
    type: str
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    data: bytes = b""
    extensions: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        for name in ("id", "source", "type"):
            if not getattr(self, name):
                raise MalformedContent(f"the event's {name} is empty", reason="SchemaViolation")

    def __repr__(self) -> str:
        """Without the data, which is a payload."""
        return f"CloudEvent(source={self.source!r}, id={self.id!r}, type={self.type!r})"


def from_attributes(attributes: Mapping[str, Any], data: bytes) -> CloudEvent:
    """The event of these attributes, by their names; raises MalformedContent naming what is wrong."""
    if attributes.get("specversion") != "1.0":
        raise MalformedContent("the event's specversion is not 1.0", reason="SchemaViolation")
    extensions = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in attributes.items()
        if name not in _NOT_EXTENSIONS and _EXTENSION.fullmatch(name) and value is not None
    }
    known = {name: attributes[name] for name in _ATTRIBUTES if attributes.get(name) is not None}
    try:
        return msgspec.convert({**known, "data": data, "extensions": extensions}, CloudEvent)
    except msgspec.ValidationError as error:
        raise MalformedContent(f"the event: {error}", reason="SchemaViolation") from error


def from_json(encoded: bytes) -> CloudEvent:
    """The event in a JSON object, as structured and batch mode have it."""
    members = decoded_object(encoded)
    attributes = {
        name: _value(raw) for name, raw in members.items() if name not in ("data", "data_base64")
    }
    return from_attributes(attributes, _data(members, attributes.get("datacontenttype")))


def from_event_grid_schema(encoded: bytes) -> CloudEvent:
    """The event in a JSON object of Event Grid's own schema, whose topic is the source."""
    members = decoded_object(encoded)
    names = {"id": "id", "topic": "source", "eventType": "type", "subject": "subject"}
    attributes = {new: _value(members[old]) for old, new in names.items() if old in members}
    attributes["time"] = _value(members.get("eventTime", msgspec.Raw(b"null")))
    attributes["dataversion"] = _value(members.get("dataVersion", msgspec.Raw(b"null")))
    return from_attributes({**attributes, "specversion": "1.0"}, _data(members, None))


def from_trigger(event: func.EventGridEvent | func.CloudEvent) -> CloudEvent:
    """The event that the Event Grid trigger hands over, in whichever schema the subscription has."""
    data = event.get_json()
    if isinstance(event, func.CloudEvent):
        extensions = dict(event.extension_attrs)
        raw = extensions.pop("data_base64", None)
        attributes = {
            **extensions,
            **{name: getattr(event, name) for name in ("specversion", *_ATTRIBUTES)},
        }
        if raw is not None:
            return from_attributes(attributes, _from_base64(raw))
        return from_attributes(attributes, _encoded(data, event.datacontenttype))
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.topic,
        "type": event.event_type,
        "subject": event.subject,
        "time": event.event_time,
        "dataversion": event.data_version,
    }
    return from_attributes(attributes, _encoded(data, None))


def delivery_of(event: CloudEvent, *, trigger: str, digest: str = "event1") -> Delivery:
    """What a consumer needs to know of an event; raises InvalidKey when its key is too long.

    ``digest`` names how the data came: digests of data that was decoded on the way, which rounds
    numbers, are not comparable with those of the sender's own bytes.
    """
    try:
        content = canonical_json(event.data)
    except MalformedContent:
        content = raw_bytes(event.data)
    of_all = msgspec.json.encode([event.type, event.subject, content])
    return Delivery(
        key=joined(event.source, event.id, what="source and id of the event"),
        fingerprint=f"{digest}:{raw_bytes(of_all).partition(':')[2]}",
        trigger=trigger,
        trace_parent=trace_parent(event.extensions.get("traceparent")),
    )


def decoded_object(encoded: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, undecoded."""
    return _decoded(encoded, dict[str, msgspec.Raw], "the event is no JSON object")


def decoded_array(encoded: bytes) -> list[msgspec.Raw]:
    """The elements of a JSON array, undecoded."""
    return _decoded(encoded, list[msgspec.Raw], "the body is no JSON array of events")


def _decoded[T](encoded: bytes, as_type: type[T], complaint: str) -> T:
    try:
        return msgspec.json.decode(encoded, type=as_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedContent(complaint, reason="MalformedJson") from error


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedContent("an attribute is not JSON", reason="MalformedJson") from error


def _data(members: Mapping[str, msgspec.Raw], content_type: Any) -> bytes:
    if "data_base64" in members:
        if "data" in members:
            raise MalformedContent("the event has data and data_base64", reason="SchemaViolation")
        return _from_base64(_value(members["data_base64"]))
    if "data" not in members:
        return b""
    data = bytes(members["data"])
    if not _is_json(content_type) and isinstance(text := _value(members["data"]), str):
        return _text(text)
    return data


def _encoded(data: Any, content_type: str | None) -> bytes:
    """Data that the trigger has decoded, as the bytes it was."""
    if data is None:
        return b""
    if isinstance(data, str) and not _is_json(content_type):
        return _text(data)
    try:
        return msgspec.json.encode(data)
    except (UnicodeEncodeError, TypeError, RecursionError) as error:
        raise MalformedContent("the data is not JSON", reason="MalformedJson") from error


def _is_json(content_type: Any) -> bool:
    if not isinstance(content_type, str):
        return True
    return _JSON.fullmatch(content_type.partition(";")[0].strip()) is not None


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MalformedContent("the data holds half a surrogate pair") from error


def _from_base64(encoded: Any) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise MalformedContent("data_base64 is not base64", reason="SchemaViolation") from error
