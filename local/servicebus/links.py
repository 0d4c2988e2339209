"""The links of a connection: producers, consumers, and the two request-response nodes.

proton's objects are `Any` here. Every link has one role object, held by the front end until the
link or its connection ends.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from proton import Condition, Delivery, Link, int32, symbol
from proton import Message as AmqpMessage

from .clock import Clock
from .errors import Refusal, TooLarge
from .faults import Faults
from .locks import SessionLock
from .management import Reply, Request
from .message import Disposition, Outcome
from .queue import Queue
from .settlement import Settlement
from .topic import Topic
from .wire import decode, encode, owned

_CREDIT = 500


def condition(refusal: Refusal) -> Any:
    """The AMQP error of a refusal. The info map is never left out: some clients need it."""
    return Condition(refusal.condition, str(refusal), {symbol("status"): int32(refusal.status)})


def close(link: Any, refusal: Refusal) -> None:
    """Detach a link, telling why."""
    link.condition = condition(refusal)
    link.close()


class Producer:
    """A link over which a client sends to a queue or topic.

    The client knows the link's `max_message_size`; whatever is larger is rejected.
    """

    def __init__(self, link: Any, entity: Queue | Topic, clock: Clock) -> None:
        self.link = link
        self._entity = entity
        self._clock = clock
        link.flow(_CREDIT)

    def on_delivery(self, delivery: Any) -> None:
        """Let in what a transfer holds, once it is all here, and answer."""
        payload = received(self.link, delivery)
        if payload is None:
            return
        limit = self.link.max_message_size
        try:
            if len(payload) > limit:
                raise TooLarge(f"{len(payload)} bytes exceed the limit of {limit} bytes.")
            for content in decode(payload, self._clock):
                self._entity.send(content)
            delivery.update(Delivery.ACCEPTED)
        except Refusal as refusal:
            delivery.local.condition = condition(refusal)
            delivery.update(Delivery.REJECTED)
        delivery.settle()
        self.link.flow(1)


class Consumer:
    """A link over which a client receives from a queue."""

    def __init__(
        self,
        link: Any,
        queue: Queue,
        clock: Clock,
        faults: Faults,
        disconnect: Callable[[], None],
        session: SessionLock | None = None,
    ) -> None:
        self.link = link
        self.queue = queue
        self.session = session
        self._clock = clock
        self._faults = faults
        self._disconnect = disconnect
        self._is_connected = True
        self._deletes = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._tokens: dict[Any, UUID] = {}

    def deliver_one(self) -> bool:
        """Hand over the next message, if the client wants one and there is one."""
        if self.link.credit <= 0:
            return False
        lock = self.queue.receive(self.session)
        if lock is None:
            return False
        delivery = self.link.delivery(lock.token.bytes_le)
        self.link.stream(encode(lock.message, self._clock, None if self._deletes else lock.until))
        self.link.advance()
        if self._deletes:
            self.queue.settle(lock.token, Disposition(Outcome.COMPLETED))
            delivery.settle()
        else:
            self._tokens[delivery] = lock.token
        return True

    def on_delivery(self, delivery: Any) -> None:
        """Take a settlement of the client's to the queue."""
        token = self._tokens.get(delivery)
        if token is None or not delivery.updated:
            return
        disposition = _disposition(delivery)
        if disposition is None:
            if delivery.settled:  # without an outcome: the lock stays until it expires
                del self._tokens[delivery]
                delivery.settle()
            return
        del self._tokens[delivery]
        self._faults.meet(
            Settlement(
                self.queue,
                token,
                disposition,
                answer=lambda refusal: self._answer(delivery, refusal),
                disconnect=self._disconnect,
                is_connected=lambda: self._is_connected,
            )
        )

    def lost(self) -> None:
        """The connection is gone; what the client held stays locked until that expires."""
        self._is_connected = False
        self._tokens.clear()

    def left(self) -> None:
        """The client detached in good order: its session is free again."""
        self.lost()
        if self.session is not None:
            self.queue.release_session(self.session)

    def _answer(self, delivery: Any, refusal: Refusal | None) -> None:
        """Echo the outcome that was applied, or reject with the reason."""
        if not self._is_connected:
            return
        if refusal is not None:
            delivery.local.condition = condition(refusal)
            delivery.update(Delivery.REJECTED)
        else:
            if delivery.remote_state == Delivery.MODIFIED:
                delivery.local.failed = delivery.remote.failed
                delivery.local.undeliverable = delivery.remote.undeliverable
            delivery.update(delivery.remote_state)
        delivery.settle()


class Requests:
    """A link over which a client sends requests to `$cbs` or to an entity's `$management`."""

    def __init__(
        self,
        link: Any,
        answer: Callable[[Request, Callable[[Reply], None]], None],
        replies: Callable[[], "Replies | None"],
        keys: tuple[str, str],
    ) -> None:
        self.link = link
        self._answer = answer
        self._replies = replies
        self._status_key, self._description_key = keys
        link.flow(_CREDIT)

    def on_delivery(self, delivery: Any) -> None:
        """Answer one request over the reply link of the same AMQP session."""
        payload = received(self.link, delivery)
        if payload is None:
            return
        message = AmqpMessage()
        message.decode(payload)
        properties = owned(message.properties) or {}
        request = Request(str(properties.get("operation")), owned(message.body) or {})
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        self.link.flow(1)
        self._answer(request, lambda reply: self._send(message.id, reply))

    def _send(self, request_id: Any, reply: Reply) -> None:
        message: Any = AmqpMessage(body=reply.body, correlation_id=request_id)
        message.properties = {
            self._status_key: int32(reply.status),
            self._description_key: reply.description,
        }
        if reply.condition is not None:
            message.properties["errorCondition"] = symbol(reply.condition)
        message.inferred = False
        replies = self._replies()
        if replies is not None:
            replies.link.send(message).settle()


class Replies:
    """A link over which a client gets the replies to its requests."""

    def __init__(self, link: Any, node: str) -> None:
        self.link = link
        self.node = node

    def on_delivery(self, delivery: Any) -> None:
        """Replies are sent settled: nothing comes back."""


def received(link: Any, delivery: Any) -> bytes | None:
    """The bytes of a transfer, once it is complete; None before."""
    if not delivery.readable or delivery.partial:
        return None
    payload = link.recv(delivery.pending)
    link.advance()
    return bytes(payload)


def _disposition(delivery: Any) -> Disposition | None:
    """What the client says of a delivery; None while it says nothing final."""
    remote = delivery.remote
    match delivery.remote_state:
        case Delivery.ACCEPTED:
            return Disposition(Outcome.COMPLETED)
        case Delivery.RELEASED:
            return Disposition(Outcome.RELEASED)
        case Delivery.MODIFIED:
            outcome = Outcome.DEFERRED if remote.undeliverable else Outcome.ABANDONED
            return Disposition(outcome, properties=owned(remote.annotations) or {})
        case Delivery.REJECTED:
            info = (remote.condition.info if remote.condition else None) or {}
            return Disposition(
                Outcome.DEAD_LETTERED,
                info.get("DeadLetterReason"),
                info.get("DeadLetterErrorDescription"),
            )
        case _:
            return None
