"""AMQP sections in and out, without a connection."""

import time
from typing import Any
from uuid import UUID

import pytest
from proton import Data, Described, int32, symbol, ubyte, uint, ulong

from local.servicebus.clock import Clock
from local.servicebus.errors import Malformed
from local.servicebus.message import Message
from local.servicebus.wire import decode, encode


@pytest.fixture
def clock() -> Clock:
    return Clock(source=lambda: 1_700_000_000.0)


def section(code: int, value: Any) -> bytes:
    data = Data()
    data.put_object(Described(ulong(code), value))
    return bytes(data.encode())


def properties(message_id: Any, group_id: str | None = None) -> bytes:
    return section(0x73, [message_id, *[None] * 9, group_id])


def plain(message_id: Any, payload: bytes) -> bytes:
    return properties(message_id) + section(0x75, payload)


def in_a_queue(payload: bytes, clock: Clock) -> Message:
    [content] = decode(payload, clock)
    return Message(content, 7, dict(content.properties), enqueued_at=clock.now())


def test_everything_the_producer_set_comes_out_again(clock: Clock) -> None:
    application = {
        "int": int32(5),
        "long": 5,
        "unsigned": uint(5),
        "byte": ubyte(5),
        "real": 0.5,
        "flag": True,
        "none": None,
        "binary": b"\x00\xff",
        "id": UUID(int=1),
        "text": "a\x00b 😀",
    }
    sent = (
        section(0x70, [True, ubyte(4), uint(60_000)])
        + section(0x72, {symbol("x-opt-partition-key"): "k"})
        + properties("o-1", "session")
        + section(0x74, application)
        + section(0x75, b"one ")
        + section(0x75, b"two")
        + section(0x78, {symbol("footer"): 1})
    )
    message = in_a_queue(sent, clock)
    assert (message.content.message_id, message.content.session_id) == ("o-1", "session")
    assert (message.content.body, message.content.time_to_live) == (b"one two", 60)
    again = in_a_queue(encode(message, clock), clock)
    assert again.properties == application
    assert {key: type(value) for key, value in again.properties.items()} == {
        key: type(value) for key, value in application.items()
    }
    assert again.content.encoded.properties == message.content.encoded.properties
    assert again.content.encoded.body == message.content.encoded.body
    assert again.content.encoded.header[:3] == (True, 4, 60_000)
    assert again.content.encoded.annotations[symbol("x-opt-partition-key")] == "k"
    assert again.content.encoded.annotations[symbol("x-opt-sequence-number")] == 7


def test_times_on_the_wire_are_the_clients(clock: Clock) -> None:
    annotation = section(0x72, {symbol("x-opt-scheduled-enqueue-time"): 1_700_000_030_000})
    clock.advance(100)
    [content] = decode(annotation + plain("o-1", b"x"), clock)
    assert content.scheduled_for == clock.now() + 30
    message = in_a_queue(plain("o-1", b"x"), clock)
    [seen] = decode(encode(message, clock, locked_until=clock.now() + 60), clock)
    assert seen.encoded.annotations[symbol("x-opt-locked-until")] == 1_700_000_060_000
    assert seen.encoded.annotations[symbol("x-opt-enqueued-time")] == 1_700_000_000_000


def test_a_batch_is_taken_apart(clock: Clock) -> None:
    envelope = b"".join(section(0x75, plain(each, b"")) for each in ("a", "b"))
    assert [each.message_id for each in decode(envelope, clock)] == ["a", "b"]
    first_of_batch = properties("a") + envelope  # some SDKs label the envelope
    assert [each.message_id for each in decode(first_of_batch, clock)] == ["a", "b"]


@pytest.mark.parametrize("payload", [b"", b"\x00\x53", b"\x00\x53\x75", b"\x00\x53\x73\x45", b"{}"])
def test_a_body_that_only_begins_like_a_message_stays_a_body(payload: bytes, clock: Clock) -> None:
    assert [each.body for each in decode(plain("o-1", payload), clock)] == [payload]


def test_ids_of_any_type_are_told_apart_as_text(clock: Clock) -> None:
    ids = [ulong(7), UUID(int=7), "7", None, ""]
    found = [decode(plain(each, b"x"), clock)[0].message_id for each in ids]
    assert found == ["7", str(UUID(int=7)), "7", None, ""]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff" * 20,
        properties("no body"),
        plain("cut short", b"x" * 100)[:-10],
        section(0x10, ["no section"]) + plain("o-1", b"x"),
        b"\x00\x53\x77\xa1\x02\xc3\x28",  # a string that is not UTF-8
    ],
)
def test_bytes_that_are_no_message_are_refused(payload: bytes, clock: Clock) -> None:
    with pytest.raises(Malformed):
        decode(payload, clock)


def test_a_batch_is_decoded_in_time_in_proportion_to_its_size(clock: Clock) -> None:
    """No section may copy the rest of the transfer."""

    def seconds(size: int) -> float:
        envelope = section(0x75, plain("o-1", b"x" * 300)) * size
        begin = time.process_time()
        assert len(decode(envelope, clock)) == size
        return time.process_time() - begin

    small = min(seconds(200) for _ in range(3))
    assert seconds(3_000) < 60 * small  # linear is 15, quadratic 225
