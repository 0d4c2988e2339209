"""The messages that wait for a consumer, in the order of their sequence numbers."""

import heapq
from collections.abc import Container, Iterable

from .message import Message


class Backlog:
    """Active messages, per session where the queue has sessions.

    Whatever comes back (abandoned, released, lock expired) takes its old place again. Adding
    and taking cost O(log n); entries of messages that left otherwise are skipped lazily.
    """

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._order: dict[str | None, list[int]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message, session_id: str | None) -> None:
        """Put a message into its place."""
        number = message.sequence_number
        self._messages[number] = message
        heapq.heappush(self._order.setdefault(session_id, []), number)

    def messages(self) -> Iterable[Message]:
        """All of them, in no particular order."""
        return self._messages.values()

    def discard(self, number: int) -> Message | None:
        """Take one message out, wherever it stands; None if it is not here."""
        return self._messages.pop(number, None)

    def pop(self, session_id: str | None) -> Message | None:
        """Take out the oldest message (of that session)."""
        head = self._head(session_id)
        if head is None:
            return None
        heapq.heappop(self._order[session_id])
        return self._messages.pop(head)

    def next_session(self, taken: Container[str]) -> str | None:
        """The session of the oldest waiting message whose session is not `taken`.

        Costs one look per session with waiting messages.
        """
        heads = (
            (head, session_id)
            for session_id in list(self._order)
            if session_id is not None and session_id not in taken
            if (head := self._head(session_id)) is not None
        )
        return min(heads, default=(0, None))[1]

    def _head(self, session_id: str | None) -> int | None:
        """The oldest waiting number of a session; drops what has left, and empty sessions."""
        order = self._order.get(session_id, [])
        while order and order[0] not in self._messages:
            heapq.heappop(order)
        if not order:
            self._order.pop(session_id, None)
            return None
        return order[0]
