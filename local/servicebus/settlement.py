"""A settlement on its way from a client to a queue, whichever way it came."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from .errors import LockLost, Refusal
from .message import Disposition
from .queue import Queue


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a client said of one lock.

    `answer` tells the client the result, None or the refusal; it does nothing once the
    connection is gone (`is_connected`). `disconnect` cuts that connection.
    """

    queue: Queue
    token: UUID
    disposition: Disposition
    answer: Callable[[Refusal | None], None]
    disconnect: Callable[[], None]
    is_connected: Callable[[], bool]

    @property
    def message_id(self) -> str | None:
        """The message it is about; None if the lock is lost, or the message has no id."""
        try:
            return self.queue.find_lock(self.token).message.content.message_id
        except LockLost:
            return None

    def apply(self) -> Refusal | None:
        """Carry it out; the refusal if the queue does not accept it."""
        try:
            self.queue.settle(self.token, self.disposition)
        except Refusal as refusal:
            return refusal
        return None

    def apply_and_answer(self) -> None:
        """The normal course."""
        self.answer(self.apply())
