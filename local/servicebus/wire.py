"""Messages as AMQP sections: what a client sends → `Content`, `Message` → what a client gets.

proton ships no types that say anything: `Any` stands for its values, here and in the link files
only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proton import Data, Described, ProtonException, int32, symbol, timestamp, uint, ulong

from .clock import Clock
from .errors import Malformed
from .message import Content, Encoded, Message

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
_BODIES = (DATA, SEQUENCE, VALUE)
_MESSAGE_ID, _GROUP_ID = 0, 10  # fields of the properties section
_SECTION_START = b"\x00\x53"  # a described type with a small descriptor


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a message: its descriptor, its bytes as sent, its value."""

    code: int
    raw: bytes
    value: Any


def decode(payload: bytes, clock: Clock) -> list[Content]:
    """The messages of one transfer: one, or those of a batch. Raises Malformed."""
    sections = list(_sections(payload))
    if not any(section.code in _BODIES for section in sections):
        raise Malformed("The transfer holds no message body.")
    batch = _unbatched(sections)
    return [_content(each, clock) for each in (batch if batch is not None else [sections])]


def encode(message: Message, clock: Clock, locked_until: float | None = None) -> bytes:
    """A message with the broker's annotations, times shifted to the client's real time."""
    encoded = message.content.encoded
    annotations: dict[Any, Any] = dict(encoded.annotations)
    annotations[symbol("x-opt-enqueued-time")] = _milliseconds(message.enqueued_at, clock)
    annotations[symbol("x-opt-sequence-number")] = message.sequence_number
    annotations[symbol("x-opt-enqueue-sequence-number")] = message.sequence_number
    annotations[symbol("x-opt-message-state")] = int32(message.state)
    if locked_until is not None:
        annotations[symbol("x-opt-locked-until")] = _milliseconds(locked_until, clock)
    if message.dead_letter_source is not None:
        annotations[symbol("x-opt-deadletter-source")] = message.dead_letter_source
    durable, priority, time_to_live = (*encoded.header, None, None, None)[:3]
    header = [durable, priority, time_to_live, None, uint(message.delivery_count)]
    parts = [_encoded(HEADER, header), _encoded(ANNOTATIONS, annotations), encoded.properties]
    if message.properties:
        parts.append(_encoded(APPLICATION_PROPERTIES, message.properties))
    parts.append(encoded.body)
    return b"".join(parts)


def owned(value: Any) -> Any:
    """Copy what proton decoded: binaries are views into a buffer that it will use again."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {owned(key): owned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [owned(each) for each in value]
    return value


def _milliseconds(moment: float, clock: Clock) -> Any:
    return timestamp(round(clock.to_wire(moment) * 1000))


def _encoded(code: int, value: Any) -> bytes:
    data = Data()
    data.put_object(Described(ulong(code), value))
    return bytes(data.encode())


def _sections(payload: bytes) -> Iterator[Section]:
    data = Data()
    view, position = memoryview(payload), 0
    while position < len(payload):
        data.clear()
        try:
            length = data.decode(view[position:])  # type: ignore[arg-type]  # any buffer will do
            data.rewind()
            data.next()
            described: Any = data.get_object()
        except (ProtonException, ValueError) as error:
            raise Malformed(f"Byte {position} of the message cannot be decoded: {error}") from error
        code = described.descriptor if isinstance(described, Described) else None
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise Malformed(f"Byte {position} of the message starts no AMQP section.")
        raw = payload[position : position + length]
        yield Section(code, raw, owned(described.value))
        position += length


def _unbatched(sections: list[Section]) -> list[list[Section]] | None:
    """The messages of a batch envelope; None if this is a plain message.

    proton does not show the transfer's message format, which is how a batch declares itself, so
    it is recognised by content: every body section is binary and is itself a complete message.
    """
    bodies = [section for section in sections if section.code in _BODIES]
    if any(each.code != DATA or not each.value.startswith(_SECTION_START) for each in bodies):
        return None
    try:
        messages = [list(_sections(body.value)) for body in bodies]
    except Malformed:
        return None
    complete = all(any(each.code in _BODIES for each in message) for message in messages)
    return messages if complete else None


def _content(sections: list[Section], clock: Clock) -> Content:
    by_code = {section.code: section for section in sections}
    header = tuple(_value(by_code, HEADER) or ())
    annotations: dict[Any, Any] = _value(by_code, ANNOTATIONS) or {}
    fields = [*(_value(by_code, PROPERTIES) or ()), *[None] * 13]
    scheduled = annotations.get(symbol("x-opt-scheduled-enqueue-time"))
    milliseconds = header[2] if len(header) > 2 else None
    bodies = [section for section in sections if section.code in _BODIES]
    kept = [*bodies, *(section for section in sections if section.code == FOOTER)]
    return Content(
        message_id=_id_text(fields[_MESSAGE_ID]),
        body=b"".join(_plain(section.value) for section in bodies),
        session_id=fields[_GROUP_ID],
        properties=_value(by_code, APPLICATION_PROPERTIES) or {},
        time_to_live=None if milliseconds is None else milliseconds / 1000,
        scheduled_for=None if scheduled is None else clock.from_wire(scheduled / 1000),
        encoded=Encoded(
            header=header,
            annotations=annotations,
            properties=by_code[PROPERTIES].raw if PROPERTIES in by_code else b"",
            body=b"".join(section.raw for section in kept),
        ),
    )


def _value(by_code: dict[int, Section], code: int) -> Any:
    return by_code[code].value if code in by_code else None


def _id_text(value: Any) -> str | None:
    """A message id of any of the types AMQP allows, as text."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    return str(int(value)) if isinstance(value, int) else str(value)


def _plain(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode()
