"""Who holds which message of a queue, and until when."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from .clock import Clock
from .errors import LockLost
from .message import Message


@dataclass(slots=True, eq=False)
class SessionLock:
    """One receiver's hold on one session and on every message it took from it."""

    session_id: str
    until: float
    tokens: set[UUID] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Lock:
    """One consumer's hold on one message.

    `forsaken`: a settlement of this lock was lost on purpose; it can only expire.
    """

    token: UUID
    message: Message
    expires_at: float
    session: SessionLock | None = None
    forsaken: bool = False

    @property
    def until(self) -> float:
        """When it ends: in a session, with the session."""
        return self.session.until if self.session else self.expires_at


class Locks:
    """The message locks of one queue.

    All locks last equally long and time only moves forward, so the order in which they were
    taken or renewed is the order in which they expire: looking at the first is enough.
    """

    def __init__(self, clock: Clock, lock_seconds: float) -> None:
        self._clock = clock
        self._lock_seconds = lock_seconds
        self._locks: dict[UUID, Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def messages(self) -> Iterator[Message]:
        """Every message that someone holds."""
        return (lock.message for lock in self._locks.values())

    def take(self, message: Message, session: SessionLock | None) -> Lock:
        """Hold a message, under a token nobody has used before."""
        until = self._clock.now() + self._lock_seconds
        lock = Lock(uuid.uuid4(), message, until, session)
        self._locks[lock.token] = lock
        if session is not None:
            session.tokens.add(lock.token)
        return lock

    def find(self, token: UUID) -> Lock:
        """The lock with that token; LockLost if it ended, or was forsaken."""
        lock = self._locks.get(token)
        if lock is None or lock.forsaken:
            raise LockLost("The lock supplied is invalid. It expired, or the message was settled.")
        return lock

    def renew(self, token: UUID) -> Lock:
        """Prolong a lock; LockLost if it ended."""
        lock = self.find(token)
        lock.expires_at = self._clock.now() + self._lock_seconds
        self._locks[token] = self._locks.pop(token)  # to the end: expires last
        return lock

    def release(self, lock: Lock) -> None:
        """End a lock."""
        del self._locks[lock.token]
        if lock.session is not None:
            lock.session.tokens.discard(lock.token)

    def in_session(self, session: SessionLock) -> list[Lock]:
        """The locks that hang on a session."""
        return [self._locks[token] for token in session.tokens]

    def next_expiry(self) -> float | None:
        """When the next lock ends; None if nothing is held."""
        return next((lock.until for lock in self._locks.values()), None)

    def expired(self) -> Iterator[Lock]:
        """The locks whose time is over, oldest first; each must be released before the next."""
        now = self._clock.now()
        while (until := self.next_expiry()) is not None and until <= now:
            yield next(iter(self._locks.values()))
