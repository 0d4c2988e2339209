"""Sessions of a queue, moved by the clock alone."""

from datetime import timedelta

import pytest

from local.servicebus.clock import Clock
from local.servicebus.entities import Entities, QueueSettings
from local.servicebus.errors import LockLost, NotAllowed, SessionLockLost, SessionTaken
from local.servicebus.locks import Lock, SessionLock
from local.servicebus.message import Content, Disposition, Outcome
from local.servicebus.namespace import Namespace
from local.servicebus.queue import Queue

SESSIONS = QueueSettings("steps", lock=timedelta(seconds=60), requires_session=True)


@pytest.fixture
def clock() -> Clock:
    return Clock(source=lambda: 1_700_000_000.0)


@pytest.fixture
def queue(clock: Clock) -> Queue:
    queue = Namespace(Entities(queues=(SESSIONS,)), clock).queue("steps")
    for number in range(2):
        for session_id in ("A", "B"):
            queue.send(Content(f"{session_id}{number}", session_id=session_id))
    return queue


def accept(queue: Queue, session_id: str | None) -> SessionLock:
    session = queue.accept_session(session_id)
    assert session is not None
    return session


def receive(queue: Queue, session: SessionLock) -> Lock:
    lock = queue.receive(session)
    assert lock is not None
    return lock


def test_a_session_hands_out_its_own_messages_in_order(queue: Queue) -> None:
    session = accept(queue, "B")
    assert [receive(queue, session).message.content.message_id for _ in range(2)] == ["B0", "B1"]
    assert queue.receive(session) is None


def test_a_session_belongs_to_one_receiver_at_a_time(queue: Queue) -> None:
    session = accept(queue, "A")
    with pytest.raises(SessionTaken):
        queue.accept_session("A")
    queue.release_session(session)
    accept(queue, "A")


def test_the_next_available_session_is_the_one_that_waits_longest(queue: Queue) -> None:
    first, second = accept(queue, None), accept(queue, None)
    assert (first.session_id, second.session_id) == ("A", "B")
    assert queue.accept_session(None) is None


def test_leaving_gives_the_messages_back_without_counting(queue: Queue) -> None:
    session = accept(queue, "A")
    receive(queue, session)
    queue.release_session(session)
    lock = receive(queue, accept(queue, "A"))
    assert (lock.message.content.message_id, lock.message.delivery_count) == ("A0", 0)


def test_the_end_of_a_session_lock_ends_the_locks_of_its_messages(
    queue: Queue, clock: Clock
) -> None:
    session = accept(queue, "A")
    lock = receive(queue, session)
    clock.advance(60)
    with pytest.raises(LockLost):
        queue.settle(lock.token, Disposition(Outcome.COMPLETED))
    with pytest.raises(SessionLockLost):
        queue.receive(session)
    assert receive(queue, accept(queue, "A")).message.delivery_count == 1


def test_renewing_a_session_keeps_its_messages(queue: Queue, clock: Clock) -> None:
    session = accept(queue, "A")
    lock = receive(queue, session)
    other = accept(queue, "B")
    clock.advance(50)
    queue.sessions.renew("A")
    clock.advance(50)
    queue.settle(lock.token, Disposition(Outcome.COMPLETED))
    assert not queue.sessions.holds(other)
    assert queue.counts().completed == 1


def test_a_session_keeps_its_state_for_the_next_receiver(queue: Queue) -> None:
    queue.sessions.set_state("A", b"half way")
    queue.release_session(accept(queue, "A"))
    assert queue.sessions.state("A") == b"half way"


def test_what_does_not_fit_is_refused(queue: Queue, clock: Clock) -> None:
    with pytest.raises(NotAllowed):
        queue.send(Content("no session"))
    plain = Namespace(Entities(queues=(QueueSettings("plain"),)), clock).queue("plain")
    with pytest.raises(NotAllowed):
        plain.accept_session("A")
