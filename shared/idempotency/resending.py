"""Re-sending dead letters: a new message for the same logical one.

The copy has a MessageId of its own, since the broker's own detection would swallow the old one, and
the old one's deduplication key, so that every consumer still recognises it. Sent first, removed
afterwards: after a crash in between both are there, and the consumer's record makes one of them a
duplicate.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from .dead_letters import Choice, DeadLetter, Judge, Mode, Verdict, admit
from .errors import IdempotencyError
from .properties import (
    DEDUPLICATION_KEY,
    DESCRIPTION,
    FIRST_ENQUEUED_TIME,
    FORCED,
    REASON,
    RESEND_COUNT,
)

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

_BATCH = 50
_QUIET_SECONDS = 2.0
"""For how long nothing comes before a queue counts as empty."""


class BrokerUnavailable(IdempotencyError):
    """The broker did not answer, or does not know the entity; what was re-sent by then is re-sent."""


class DeadLetters:
    """The dead letters of one queue or of one subscription, written ``topic/subscription``.

    ``quarantine``: the entity is a queue that stands in for dead-lettering: its own messages are
    meant, and they are re-sent ``to`` another queue. What is re-sent of a subscription goes to its
    topic, and so to all its subscriptions: there too, only who has not done its work does it now.
    """

    def __init__(
        self,
        client: "ServiceBusClient",
        entity: str,
        *,
        to: str | None = None,
        quarantine: bool = False,
    ) -> None:
        self._client = client
        self._entity = entity
        self._quarantine = quarantine
        self.to = to or entity.partition("/")[0]

    async def look(self, choice: Choice, judge: Judge = admit, *, limit: int) -> list[Verdict]:
        """What would be done, in the order of the queue; nothing is changed or even locked.

        Raises BrokerUnavailable.
        """
        verdicts: list[Verdict] = []
        async for message in self._peeked():
            verdict = await _verdict(message, choice, judge)
            if verdict is not None:
                verdicts.append(verdict)
            if len(verdicts) >= limit:
                break
        return verdicts

    async def resend(self, verdicts: list[Verdict], mode: Mode) -> list[Verdict]:
        """Re-send those that `look` says are to be; those that were, as some may be gone meanwhile.

        Any other stays as it is, but for a delivery count. Raises BrokerUnavailable.
        """
        meant = {each.letter.sequence_number: each for each in verdicts if each.resend}
        done: list[Verdict] = []
        if not meant:
            return done
        async with (
            _translated(),
            self._receiver() as receiver,
            self._client.get_queue_sender(self.to) as sender,  # a topic takes messages as a queue
        ):
            async for message in _received_once(receiver):
                verdict = meant.pop(message.sequence_number or 0, None)
                if verdict is not None:
                    await sender.send_messages(_copy(message, verdict.letter, mode, self._entity))
                    await receiver.complete_message(message)
                    done.append(verdict)
                if not meant:
                    break
        return done

    def _receiver(self) -> "ServiceBusReceiver":
        from azure.servicebus import ServiceBusSubQueue

        options: dict[str, Any] = {"max_wait_time": _QUIET_SECONDS}
        if not self._quarantine:
            options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
        topic, _, subscription = self._entity.partition("/")
        if subscription:
            return self._client.get_subscription_receiver(topic, subscription, **options)
        return self._client.get_queue_receiver(topic, **options)

    async def _peeked(self) -> "AsyncIterator[ServiceBusReceivedMessage]":
        async with _translated(), self._receiver() as receiver:
            after = 0
            while batch := await receiver.peek_messages(_BATCH, sequence_number=after):
                for message in batch:
                    yield message
                after = max(message.sequence_number or 0 for message in batch) + 1


async def _received_once(
    receiver: "ServiceBusReceiver",
) -> "AsyncIterator[ServiceBusReceivedMessage]":
    """Every message once; what is not settled is given back at the end.

    A message seen again came back because its lock ended: then everything was seen.
    """
    seen: set[int] = set()
    held: dict[int, ServiceBusReceivedMessage] = {}
    try:
        while batch := await receiver.receive_messages(_BATCH, max_wait_time=_QUIET_SECONDS):
            fresh = [m for m in batch if (m.sequence_number or 0) not in seen]
            held.update({m.sequence_number or 0: m for m in batch})
            if not fresh:
                return
            for message in fresh:
                seen.add(message.sequence_number or 0)
                yield message
    finally:
        for message in held.values():
            if not message._settled:  # the SDK tells it nowhere else
                await _given_back(receiver, message)


async def _given_back(receiver: "ServiceBusReceiver", message: "ServiceBusReceivedMessage") -> None:
    from azure.servicebus.exceptions import ServiceBusError

    try:
        await receiver.abandon_message(message)
    except ServiceBusError:
        return  # its lock has ended: it is back already


async def _verdict(
    message: "ServiceBusReceivedMessage", choice: Choice, judge: Judge
) -> Verdict | None:
    """What becomes of a message; None when it is not meant."""
    letter = dead_letter_of(message)
    if not choice.takes(letter):
        return None
    if letter.key is None:
        why = "it has no key: no consumer could recognise its duplicates"
        return Verdict(letter=letter, resend=False, why=why)
    body = body_of(message)
    if body is None:
        return Verdict(letter=letter, resend=False, why="its body is no binary data")
    refusal = await judge(letter, body)
    return Verdict(letter=letter, resend=refusal is None, why=refusal or "")


def dead_letter_of(message: "ServiceBusReceivedMessage") -> DeadLetter:
    """What there is to say of a dead letter, its content apart."""
    properties = _properties(message)
    key = properties.get(DEDUPLICATION_KEY, message.message_id)
    enqueued = message.enqueued_time_utc
    return DeadLetter(
        sequence_number=message.sequence_number or 0,
        message_id=message.message_id,
        key=str(key) if key not in (None, "") else None,
        reason=str(properties.get(REASON) or message.dead_letter_reason or ""),
        description=str(properties.get(DESCRIPTION) or message.dead_letter_error_description or ""),
        enqueued_at=enqueued.timestamp() if enqueued else None,
        resend_count=_count(properties.get(RESEND_COUNT)),
    )


def body_of(message: "ServiceBusReceivedMessage") -> bytes | None:
    """The body's bytes; None for a body of another kind, which no Functions app sends or takes."""
    try:
        return b"".join(bytes(part) for part in cast("Any", message.body))
    except TypeError:
        return None


def _copy(
    message: "ServiceBusReceivedMessage", letter: DeadLetter, mode: Mode, entity: str
) -> "ServiceBusMessage":
    from azure.servicebus import ServiceBusMessage

    properties = _properties(message)
    for name in (REASON, DESCRIPTION, FORCED):
        properties.pop(name, None)
    count = letter.resend_count + 1
    properties[DEDUPLICATION_KEY] = letter.key
    properties[RESEND_COUNT] = count
    if message.enqueued_time_utc is not None:
        # the copy is enqueued anew, but it is as old as the first of them
        properties.setdefault(FIRST_ENQUEUED_TIME, message.enqueued_time_utc.isoformat())
    if mode == "force":
        properties[FORCED] = "true"
    of_this = f"{entity}\n{letter.sequence_number}\n{count}\n{letter.message_id}"
    return ServiceBusMessage(
        body_of(message),
        # the same for the same dead letter: a second copy after a crash is dropped by the broker
        message_id=f"resend-{hashlib.sha256(of_this.encode()).hexdigest()[:32]}",
        application_properties=cast("Any", properties),
        session_id=message.session_id,
        partition_key=None if message.session_id else message.partition_key,
        correlation_id=message.correlation_id,
        content_type=message.content_type,
        subject=message.subject,
        to=message.to,
        reply_to=message.reply_to,
    )


def _properties(message: "ServiceBusReceivedMessage") -> dict[str, Any]:
    """Application properties as their sender had them: the SDK gives text as bytes."""
    return {
        str(_text(name)): _text(value)
        for name, value in (message.application_properties or {}).items()
    }


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _count(value: Any) -> int:
    try:
        return max(0, int(value or 0))
    except (TypeError, ValueError):
        return 0


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """The SDK's errors in the words of this module."""
    from azure.core.exceptions import AzureError
    from azure.servicebus.exceptions import ServiceBusError

    try:
        yield
    except (ServiceBusError, AzureError, OSError, TimeoutError) as error:
        raise BrokerUnavailable(f"Service Bus: {error}") from error
