"""Who holds which session of a queue, until when, and what state a session keeps."""

from collections.abc import Iterator

from .clock import Clock
from .errors import SessionLockLost, SessionTaken
from .locks import SessionLock


class Sessions:
    """Session locks and states of one queue.

    All locks last equally long and time only moves forward, so the order in which they were
    taken or renewed is the order in which they expire: looking at the first is enough.
    """

    def __init__(self, clock: Clock, lock_seconds: float) -> None:
        self._clock = clock
        self._lock_seconds = lock_seconds
        self._locks: dict[str, SessionLock] = {}
        self._states: dict[str, bytes | None] = {}

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._locks

    def next_expiry(self) -> float | None:
        """When the next lock ends; None if no session is held."""
        return next((lock.until for lock in self._locks.values()), None)

    def lock(self, session_id: str) -> SessionLock:
        """Give the session to a receiver; SessionTaken if another one holds it."""
        if session_id in self._locks:
            raise SessionTaken(f"The session '{session_id}' is held by another receiver.")
        lock = SessionLock(session_id, self._clock.now() + self._lock_seconds)
        self._locks[session_id] = lock
        return lock

    def held(self, session_id: str) -> SessionLock:
        """The lock of a session; SessionLockLost if nobody holds it."""
        lock = self._locks.get(session_id)
        if lock is None:
            raise SessionLockLost(f"The lock of session '{session_id}' has expired.")
        return lock

    def holds(self, lock: SessionLock) -> bool:
        """Whether this very lock is still the one that counts."""
        return self._locks.get(lock.session_id) is lock

    def renew(self, session_id: str) -> SessionLock:
        """Prolong a lock; SessionLockLost if it has ended."""
        lock = self.held(session_id)
        lock.until = self._clock.now() + self._lock_seconds
        self._locks[session_id] = self._locks.pop(session_id)  # to the end: expires last
        return lock

    def release(self, lock: SessionLock) -> None:
        """Let another receiver have the session."""
        del self._locks[lock.session_id]

    def pop_expired(self) -> Iterator[SessionLock]:
        """Take out the locks that have ended."""
        now = self._clock.now()
        while (until := self.next_expiry()) is not None and until <= now:
            yield self._locks.pop(next(iter(self._locks)))

    def state(self, session_id: str) -> bytes | None:
        """What a receiver left with the session; None if nothing."""
        return self._states.get(session_id)

    def set_state(self, session_id: str, state: bytes | None) -> None:
        """Keep a state with the session; None clears it."""
        self._states[session_id] = state
