"""One queue, subscription or dead-letter queue: pure state and a clock, no network."""

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import asdict
from uuid import UUID

from .backlog import Backlog
from .clock import Clock
from .counts import Counts, Tally
from .detection import DetectionHistory
from .entities import QueueSettings
from .errors import LockLost, MessageNotFound, NotAllowed, SessionLockLost
from .locks import Lock, Locks, SessionLock
from .message import (
    DESCRIPTION,
    REASON,
    Content,
    Disposition,
    Message,
    Outcome,
    Snapshot,
    State,
)
from .sessions import Sessions
from .timetable import Timetable


class Queue:
    """Messages and who holds them. Not thread-safe: the broker's thread owns it.

    Every operation first lets time take effect (`sweep`): expired locks give their messages back
    with the delivery counted, scheduled messages become active, messages past their time-to-live
    leave. A queue without `dead_letters` is a dead-letter queue itself: nothing leaves it but by
    a consumer's hand.
    """

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        clock: Clock,
        dead_letters: "Queue | None" = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.dead_letters = dead_letters
        self.sessions = Sessions(clock, settings.lock.total_seconds())
        self._clock = clock
        self._tally = Tally()
        self._numbers = itertools.count(1)
        self._history = DetectionHistory(settings.detection_window, clock)
        self._backlog = Backlog()
        self._locks = Locks(clock, settings.lock.total_seconds())
        self._deferred: dict[int, Message] = {}
        self._scheduled = Timetable[Message]()
        self._expiries = Timetable[Message]()

    # ---------------------------------------------------------------- sending

    def send(self, content: Content) -> int | None:
        """Let a message in; its sequence number, or None if it was dropped as a duplicate."""
        if self.settings.requires_session and content.session_id is None:
            raise NotAllowed(f"'{self.name}' requires a session id on every message.")
        self.sweep()
        self._tally.sent += 1
        if self._history.is_repeat(content.message_id):
            self._tally.dropped_by_detection += 1
            return None
        now = self._clock.now()
        message = Message(content, next(self._numbers), dict(content.properties), enqueued_at=now)
        if content.scheduled_for is not None and content.scheduled_for > now:
            message.state = State.SCHEDULED
            self._scheduled.add(message.sequence_number, content.scheduled_for, message)
        else:
            self._activate(message)
        return message.sequence_number

    def cancel(self, number: int) -> None:
        """Take back a scheduled message; MessageNotFound if it is not, or no longer, there."""
        self.sweep()
        if self._scheduled.take_back(number) is None:
            raise MessageNotFound(f"There is no scheduled message {number}.")

    # ---------------------------------------------------------------- receiving

    def receive(self, session: SessionLock | None = None) -> Lock | None:
        """Lock the oldest message (of that session) for a consumer; None if none waits."""
        self.sweep()
        if session is not None and not self.sessions.holds(session):
            raise SessionLockLost(f"The lock of session '{session.session_id}' has expired.")
        message = self._backlog.pop(session.session_id if session else None)
        return self._deliver(message, session) if message else None

    def receive_deferred(self, number: int) -> Lock:
        """Lock a deferred message; MessageNotFound if there is none of that number."""
        self.sweep()
        message = self._deferred.get(number)
        if message is None:
            raise MessageNotFound(f"There is no deferred message {number}.")
        session_id = self._session_of(message)
        session = self.sessions.held(session_id) if session_id is not None else None
        return self._deliver(self._deferred.pop(number), session)

    def accept_session(self, session_id: str | None) -> SessionLock | None:
        """Lock a session, or with None the one of the oldest waiting message, if there is one.

        Raises SessionTaken, and NotAllowed where the queue has no sessions.
        """
        if not self.settings.requires_session:
            raise NotAllowed(f"'{self.name}' does not support sessions.")
        self.sweep()
        wanted = session_id if session_id is not None else self._backlog.next_session(self.sessions)
        return self.sessions.lock(wanted) if wanted is not None else None

    def release_session(self, session: SessionLock) -> None:
        """The receiver leaves in good order: what it held comes back, no delivery counted."""
        self.sweep()
        if self.sessions.holds(session):
            self.sessions.release(session)
            self._end_session(session, counted=False)

    # ---------------------------------------------------------------- settling

    def find_lock(self, token: UUID) -> Lock:
        """The lock with that token; LockLost if it no longer holds."""
        self.sweep()
        return self._locks.find(token)

    def settle(self, token: UUID, disposition: Disposition) -> None:
        """Apply what a consumer says of a message it holds; LockLost if it no longer does."""
        try:
            lock = self.find_lock(token)
        except LockLost:
            self._tally.stale_settlements += 1
            raise
        if disposition.outcome is Outcome.DEAD_LETTERED and self.dead_letters is None:
            raise NotAllowed("A message cannot be dead-lettered from a dead-letter queue.")
        message = lock.message
        message.properties.update(disposition.properties)
        match disposition.outcome:
            case Outcome.COMPLETED:
                self._tally.completed += 1
                self._locks.release(lock)
                self._expiries.take_back(message.sequence_number)
            case Outcome.ABANDONED:
                self._tally.abandoned += 1
                self._give_back(lock, counted=True)
            case Outcome.RELEASED:
                self._tally.released += 1
                self._give_back(lock, counted=False)
            case Outcome.DEFERRED:
                message.state = State.DEFERRED
                self._give_back(lock, counted=False)
            case Outcome.DEAD_LETTERED:
                self._locks.release(lock)
                self._dead_letter(message, disposition.reason, disposition.description)

    def renew(self, token: UUID) -> Lock:
        """Prolong a lock; LockLost if it no longer holds."""
        self.sweep()
        return self._locks.renew(token)

    def expire(self, token: UUID) -> None:
        """End a lock now, as if its time were over; LockLost if it is over already."""
        self._expire(self.find_lock(token))

    # ---------------------------------------------------------------- looking

    def peek(self, from_number: int, limit: int) -> list[Message]:
        """Up to `limit` messages from that sequence number on, whatever their state."""
        self.sweep()
        later = (each for each in self._everything() if each.sequence_number >= from_number)
        return heapq.nsmallest(limit, later, key=lambda each: each.sequence_number)

    def messages(self) -> tuple[Snapshot, ...]:
        """Everything in the queue, in order."""
        return tuple(message.snapshot() for message in self.peek(0, len(self)))

    def counts(self) -> Counts:
        """Totals so far and what is here now."""
        self.sweep()
        return Counts(
            **asdict(self._tally),
            active=len(self._backlog),
            locked=len(self._locks),
            deferred=len(self._deferred),
            scheduled=len(self._scheduled),
            dead=len(self.dead_letters) if self.dead_letters else 0,
        )

    def __len__(self) -> int:
        return len(self._backlog) + len(self._locks) + len(self._deferred) + len(self._scheduled)

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    # ---------------------------------------------------------------- time

    def sweep(self) -> None:
        """Let everything happen that fell due; cheap when nothing did."""
        now = self._clock.now()
        for session in self.sessions.pop_expired():
            self._end_session(session, counted=True)
        for lock in self._locks.expired():
            self._expire(lock)
        for message in self._scheduled.pop_due(now):
            self._activate(message)
        for message in self._expiries.pop_due(now):
            number = message.sequence_number
            if self._backlog.discard(number) or self._deferred.pop(number, None):
                self._expire_message(message)  # else it is held: judged when it comes back

    def next_moment(self) -> float | None:
        """When `sweep` will next have something to do; None if nothing is waiting for time."""
        moments = (
            self._locks.next_expiry(),
            self.sessions.next_expiry(),
            self._scheduled.next_moment(),
            self._expiries.next_moment(),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    # ---------------------------------------------------------------- a message's way

    def _activate(self, message: Message) -> None:
        now = self._clock.now()
        message.state, message.enqueued_at = State.ACTIVE, now
        limits = [message.content.time_to_live]
        if self.settings.time_to_live is not None:
            limits.append(self.settings.time_to_live.total_seconds())
        seconds = min((limit for limit in limits if limit is not None), default=None)
        if seconds is not None:
            message.expires_at = now + seconds
            self._expiries.add(message.sequence_number, message.expires_at, message)
        self._backlog.add(message, self._session_of(message))

    def _deliver(self, message: Message, session: SessionLock | None) -> Lock:
        self._tally.delivered += 1
        return self._locks.take(message, session)

    def _give_back(self, lock: Lock, *, counted: bool) -> None:
        message = lock.message
        self._locks.release(lock)
        if counted:
            message.delivery_count += 1
        limit = self.settings.max_delivery_count
        if message.expires_at is not None and message.expires_at <= self._clock.now():
            self._expire_message(message)
        elif counted and self.dead_letters and message.delivery_count >= limit:
            self._dead_letter(
                message,
                "MaxDeliveryCountExceeded",
                f"Message could not be consumed after {limit} delivery attempts.",
            )
        elif message.state is State.DEFERRED:
            self._deferred[message.sequence_number] = message
        else:
            self._backlog.add(message, self._session_of(message))

    def _expire(self, lock: Lock) -> None:
        self._tally.locks_expired += 1
        self._give_back(lock, counted=True)

    def _end_session(self, session: SessionLock, *, counted: bool) -> None:
        for lock in self._locks.in_session(session):
            if counted:
                self._expire(lock)
            else:
                self._give_back(lock, counted=False)

    def _expire_message(self, message: Message) -> None:
        self._tally.expired += 1
        if self.settings.dead_letter_on_expiration:
            self._dead_letter(message, "TTLExpiredException", "The message's time-to-live ended.")

    def _dead_letter(self, message: Message, reason: str | None, description: str | None) -> None:
        if self.dead_letters is None:
            return
        self._tally.dead_lettered += 1
        self._expiries.take_back(message.sequence_number)
        said = {REASON: reason, DESCRIPTION: description}
        message.properties |= {key: text for key, text in said.items() if text is not None}
        message.state, message.expires_at, message.dead_letter_source = (
            State.ACTIVE,
            None,
            self.name,
        )
        self.dead_letters.admit(message)

    def admit(self, message: Message) -> None:
        """Take over a message from the queue that dead-lettered it, number and all."""
        self._tally.sent += 1
        self._backlog.add(message, self._session_of(message))

    def _session_of(self, message: Message) -> str | None:
        return message.content.session_id if self.settings.requires_session else None

    def _everything(self) -> Iterable[Message]:
        return itertools.chain(
            self._backlog.messages(),
            self._locks.messages(),
            self._deferred.values(),
            self._scheduled.items(),
        )
