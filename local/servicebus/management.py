"""The requests that clients send to `ENTITY/$management`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, timestamp

from .clock import Clock
from .errors import NotAllowed, Refusal, Unsupported
from .faults import Faults
from .message import Disposition, Outcome
from .queue import Queue
from .settlement import Settlement
from .topic import Topic
from .wire import decode, encode

_PREFIX = "com.microsoft:"
_OUTCOMES = {
    "completed": Outcome.COMPLETED,
    "abandoned": Outcome.ABANDONED,
    "defered": Outcome.DEFERRED,  # the wire's own spelling
    "suspended": Outcome.DEAD_LETTERED,
}


@dataclass(frozen=True, slots=True)
class Request:
    """An operation and its arguments."""

    operation: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A status in the manner of HTTP, and a result."""

    status: int = 200
    description: str = "OK"
    condition: str | None = None
    body: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def refused(cls, refusal: Refusal) -> "Reply":
        """What the client gets instead of a result."""
        return cls(refusal.status, str(refusal), refusal.condition)


@dataclass(frozen=True, slots=True)
class Management:
    """The management node of one queue or topic, as one connection sees it."""

    entity: Queue | Topic
    clock: Clock
    faults: Faults
    disconnect: Callable[[], None]
    is_connected: Callable[[], bool]

    def answer(self, request: Request, reply: Callable[[Reply], None]) -> None:
        """Carry out a request; `reply` is called once, now or when a held settlement is freed."""
        name = request.operation.removeprefix(_PREFIX)
        try:
            if name == "update-disposition":
                self._settle(request.body, reply)
            elif name in _OPERATIONS:
                reply(_OPERATIONS[name](self, request.body))
            else:
                raise Unsupported(f"The operation '{request.operation}' is not supported here.")
        except Refusal as refusal:
            reply(Reply.refused(refusal))
        except (KeyError, TypeError, ValueError) as error:
            reply(Reply(400, f"Unfit arguments: {error!r}", "com.microsoft:argument-error"))

    @property
    def queue(self) -> Queue:
        """The entity, where only a queue will do; NotAllowed on a topic."""
        if isinstance(self.entity, Topic):
            raise NotAllowed(f"'{self.entity.name}' is a topic.")
        return self.entity

    # ---------------------------------------------------------------- settling

    def _settle(self, body: Mapping[str, Any], reply: Callable[[Reply], None]) -> None:
        disposition = Disposition(
            _OUTCOMES[body["disposition-status"]],
            body.get("deadletter-reason"),
            body.get("deadletter-description"),
            body.get("properties-to-modify") or {},
        )
        self._settle_each(list(body["lock-tokens"]), disposition, reply)

    def _settle_each(
        self, tokens: list[UUID], disposition: Disposition, reply: Callable[[Reply], None]
    ) -> None:
        """Settle one after the other; the first refusal ends it."""
        if not tokens:
            reply(Reply())
            return

        def answer(refusal: Refusal | None) -> None:
            if refusal is not None:
                reply(Reply.refused(refusal))
            else:
                self._settle_each(tokens[1:], disposition, reply)

        self.faults.meet(
            Settlement(
                self.queue, tokens[0], disposition, answer, self.disconnect, self.is_connected
            )
        )

    def _renew_lock(self, body: Mapping[str, Any]) -> Reply:
        ends = [self._wire_time(self.queue.renew(token).until) for token in body["lock-tokens"]]
        return Reply(body={"expirations": _array(Data.TIMESTAMP, ends)})

    # ---------------------------------------------------------------- messages

    def _peek_message(self, body: Mapping[str, Any]) -> Reply:
        found = self.queue.peek(int(body["from-sequence-number"]), int(body["message-count"]))
        if not found:
            return Reply(204, "No Content")
        return Reply(body={"messages": [{"message": encode(each, self.clock)} for each in found]})

    def _schedule_message(self, body: Mapping[str, Any]) -> Reply:
        numbers = [
            self.entity.send(content) or 0
            for entry in body["messages"]
            for content in decode(entry["message"], self.clock)
        ]
        return Reply(body={"sequence-numbers": _array(Data.LONG, numbers)})

    def _cancel_scheduled_message(self, body: Mapping[str, Any]) -> Reply:
        for number in body["sequence-numbers"]:
            self.entity.cancel(int(number))
        return Reply()

    def _receive_by_sequence_number(self, body: Mapping[str, Any]) -> Reply:
        deletes = int(body.get("receiver-settle-mode", 0)) == 0
        entries = []
        for number in body["sequence-numbers"]:
            lock = self.queue.receive_deferred(int(number))
            until = None if deletes else lock.until
            entries.append(
                {"message": encode(lock.message, self.clock, until), "lock-token": lock.token}
            )
            if deletes:
                self.queue.settle(lock.token, Disposition(Outcome.COMPLETED))
        return Reply(body={"messages": entries})

    # ---------------------------------------------------------------- sessions

    def _renew_session_lock(self, body: Mapping[str, Any]) -> Reply:
        self.queue.sweep()
        lock = self.queue.sessions.renew(body["session-id"])
        return Reply(body={"expiration": self._wire_time(lock.until)})

    def _get_session_state(self, body: Mapping[str, Any]) -> Reply:
        return Reply(body={"session-state": self.queue.sessions.state(body["session-id"])})

    def _set_session_state(self, body: Mapping[str, Any]) -> Reply:
        self.queue.sweep()
        self.queue.sessions.held(body["session-id"])
        self.queue.sessions.set_state(body["session-id"], body["session-state"])
        return Reply()

    def _wire_time(self, moment: float) -> Any:
        return timestamp(round(self.clock.to_wire(moment) * 1000))


def _array(kind: int, elements: list[Any]) -> Any:
    undescribed: Any = UNDESCRIBED
    return Array(undescribed, kind, *elements)


_OPERATIONS: Mapping[str, Callable[[Management, Mapping[str, Any]], Reply]] = {
    "renew-lock": Management._renew_lock,
    "peek-message": Management._peek_message,
    "schedule-message": Management._schedule_message,
    "cancel-scheduled-message": Management._cancel_scheduled_message,
    "receive-by-sequence-number": Management._receive_by_sequence_number,
    "renew-session-lock": Management._renew_session_lock,
    "get-session-state": Management._get_session_state,
    "set-session-state": Management._set_session_state,
}
