"""A queue without any network, moved by the clock alone."""

import itertools
import time
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.servicebus.clock import Clock
from local.servicebus.entities import Entities, QueueSettings
from local.servicebus.errors import LockLost, MessageNotFound, NotAllowed
from local.servicebus.locks import Lock
from local.servicebus.message import Content, Disposition, Outcome, Snapshot
from local.servicebus.namespace import Namespace
from local.servicebus.queue import Queue
from local.servicebus.timetable import Timetable

COMPLETE = Disposition(Outcome.COMPLETED)
ABANDON = Disposition(Outcome.ABANDONED)
RELEASE = Disposition(Outcome.RELEASED)
DEFER = Disposition(Outcome.DEFERRED)

ORDERS = QueueSettings("orders", lock=timedelta(seconds=60), max_delivery_count=3)


@pytest.fixture
def clock() -> Clock:
    return Clock(source=lambda: 1_700_000_000.0)


def make_queue(clock: Clock, settings: QueueSettings = ORDERS) -> Queue:
    return Namespace(Entities(queues=(settings,)), clock).queue("orders")


def send(queue: Queue, *ids: str) -> None:
    for message_id in ids:
        queue.send(Content(message_id, body=message_id.encode()))


def receive(queue: Queue) -> Lock:
    lock = queue.receive()
    assert lock is not None
    return lock


def ids(queue: Queue) -> list[str | None]:
    """Receive all that waits."""
    return [lock.message.content.message_id for lock in iter(queue.receive, None)]


def dead(queue: Queue) -> tuple[Snapshot, ...]:
    assert queue.dead_letters is not None
    return queue.dead_letters.messages()


def test_messages_are_delivered_in_the_order_they_came(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a", "b", "c")
    assert ids(queue) == ["a", "b", "c"]


def test_a_locked_message_is_given_to_nobody_else(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    receive(queue)
    assert queue.receive() is None
    assert (queue.counts().active, queue.counts().locked) == (0, 1)


def test_completing_removes_the_message_for_good(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    queue.settle(receive(queue).token, COMPLETE)
    clock.advance(3600)
    assert queue.receive() is None
    assert queue.counts().completed == 1
    assert len(queue) == 0


def test_a_lock_holds_until_its_time_is_over_and_not_longer(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    receive(queue)
    clock.advance(59.9)
    assert queue.receive() is None
    clock.advance(0.1)
    assert receive(queue).message.delivery_count == 1
    assert queue.counts().locks_expired == 1


def test_a_settlement_after_expiry_is_stale_and_changes_nothing(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    old = receive(queue)
    clock.advance(60)
    new = receive(queue)
    with pytest.raises(LockLost):
        queue.settle(old.token, COMPLETE)
    assert queue.counts().stale_settlements == 1
    queue.settle(new.token, COMPLETE)
    assert queue.counts().completed == 1


def test_a_second_settlement_of_the_same_lock_is_stale(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    lock = receive(queue)
    queue.settle(lock.token, COMPLETE)
    with pytest.raises(LockLost):
        queue.settle(lock.token, COMPLETE)
    with pytest.raises(LockLost):
        queue.renew(uuid4())


def test_renewing_prolongs_the_lock_from_now(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a", "b")
    first, second = receive(queue), receive(queue)
    clock.advance(50)
    assert queue.renew(first.token).until == clock.now() + 60
    clock.advance(10)  # the second one, taken later, ends before the renewed first one
    assert receive(queue).message is second.message
    clock.advance(49)
    queue.settle(first.token, COMPLETE)
    assert queue.counts().completed == 1


def test_a_lock_that_ended_cannot_be_renewed(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    lock = receive(queue)
    clock.advance(60)
    with pytest.raises(LockLost):
        queue.renew(lock.token)


def test_abandoning_counts_a_delivery_and_keeps_the_place_in_the_queue(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a", "b", "c")
    lock = receive(queue)
    queue.settle(lock.token, ABANDON)
    again = receive(queue)
    assert (again.message.content.message_id, again.message.delivery_count) == ("a", 1)
    assert again.token != lock.token
    assert ids(queue) == ["b", "c"]


def test_releasing_counts_no_delivery(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    for _ in range(20):
        queue.settle(receive(queue).token, RELEASE)
    assert receive(queue).message.delivery_count == 0
    assert (queue.counts().released, queue.counts().abandoned) == (20, 0)
    assert dead(queue) == ()


def test_the_last_allowed_delivery_dead_letters_the_message(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    queue.settle(receive(queue).token, ABANDON)
    receive(queue)
    clock.advance(60)
    assert dead(queue) == ()
    queue.settle(receive(queue).token, ABANDON)
    assert queue.receive() is None
    [letter] = dead(queue)
    assert (letter.message_id, letter.delivery_count) == ("a", 3)
    assert letter.reason == "MaxDeliveryCountExceeded"
    assert (queue.counts().dead_lettered, queue.counts().dead) == (1, 1)


def test_dead_lettering_keeps_the_message_and_says_why(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.send(Content("a", body=b"payload", properties={"tenant": "x"}))
    wrong = Disposition(Outcome.DEAD_LETTERED, "PayloadMismatch", "changed: quantity")
    queue.settle(receive(queue).token, wrong)
    [letter] = dead(queue)
    assert (letter.reason, letter.description) == ("PayloadMismatch", "changed: quantity")
    assert (letter.body, letter.application_properties["tenant"]) == (b"payload", "x")


def test_dead_letters_wait_for_ever_and_however_often_they_are_abandoned(clock: Clock) -> None:
    queue = make_queue(clock, replace(ORDERS, time_to_live=timedelta(hours=1)))
    send(queue, "a")
    queue.settle(receive(queue).token, Disposition(Outcome.DEAD_LETTERED))
    letters = queue.dead_letters
    assert letters is not None
    clock.advance(7200)
    for _ in range(5):
        letters.settle(receive(letters).token, ABANDON)
    with pytest.raises(NotAllowed):
        letters.settle(receive(letters).token, Disposition(Outcome.DEAD_LETTERED))
    assert len(letters) == 1


def test_a_deferred_message_is_only_found_by_its_number(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "a")
    lock = receive(queue)
    number = lock.message.sequence_number
    queue.settle(lock.token, DEFER)
    assert queue.receive() is None
    assert queue.counts().deferred == 1
    held = queue.receive_deferred(number)
    with pytest.raises(MessageNotFound):
        queue.receive_deferred(number)
    queue.settle(held.token, ABANDON)
    assert queue.receive() is None, "abandoned, it is still a deferred one"
    queue.settle(queue.receive_deferred(number).token, COMPLETE)
    assert len(queue) == 0


def test_a_scheduled_message_comes_at_its_time(clock: Clock) -> None:
    queue = make_queue(clock)
    queue.send(Content("later", scheduled_for=clock.now() + 30))
    queue.send(Content("sooner", scheduled_for=clock.now() + 10))
    assert queue.receive() is None
    assert queue.counts().scheduled == 2
    assert queue.next_moment() == clock.now() + 10
    clock.advance(10)
    assert ids(queue) == ["sooner"]
    clock.advance(20)
    assert ids(queue) == ["later"]


def test_a_cancelled_message_never_comes(clock: Clock) -> None:
    queue = make_queue(clock)
    number = queue.send(Content("a", scheduled_for=clock.now() + 30))
    assert number is not None
    queue.cancel(number)
    with pytest.raises(MessageNotFound):
        queue.cancel(number)
    clock.advance(60)
    assert queue.receive() is None


def test_detection_drops_repeats_within_the_window_and_not_after(clock: Clock) -> None:
    queue = make_queue(clock, replace(ORDERS, detection_window=timedelta(seconds=15)))
    send(queue, "a")
    clock.advance(14)
    send(queue, "a", "b")
    assert ids(queue) == ["a", "b"]
    clock.advance(1)  # 15 s after the first: a repeat does not prolong the window
    send(queue, "a")
    assert ids(queue) == ["a"]
    assert (queue.counts().sent, queue.counts().dropped_by_detection) == (4, 1)


def test_detection_remembers_completed_messages_and_ignores_those_without_id(clock: Clock) -> None:
    queue = make_queue(clock, replace(ORDERS, detection_window=timedelta(seconds=15)))
    send(queue, "a")
    queue.settle(receive(queue).token, COMPLETE)
    send(queue, "a")
    queue.send(Content(None))
    queue.send(Content(None))
    assert ids(queue) == [None, None]


def test_a_message_past_its_time_to_live_is_dropped_or_dead_lettered(clock: Clock) -> None:
    keeping = make_queue(
        clock,
        replace(ORDERS, time_to_live=timedelta(seconds=10), dead_letter_on_expiration=True),
    )
    dropping = make_queue(clock, replace(ORDERS, time_to_live=timedelta(seconds=10)))
    for queue in (keeping, dropping):
        send(queue, "a")
    clock.advance(10)
    assert (keeping.receive(), dropping.receive()) == (None, None)
    assert [letter.reason for letter in dead(keeping)] == ["TTLExpiredException"]
    assert dead(dropping) == ()
    assert (keeping.counts().expired, dropping.counts().expired) == (1, 1)


def test_the_shorter_time_to_live_counts(clock: Clock) -> None:
    queue = make_queue(clock, replace(ORDERS, time_to_live=timedelta(seconds=10)))
    queue.send(Content("short", time_to_live=5))
    queue.send(Content("long", time_to_live=50))
    clock.advance(5)
    assert [each.message_id for each in queue.messages()] == ["long"]
    clock.advance(5)
    assert queue.messages() == ()


def test_a_held_message_does_not_expire_but_does_when_it_comes_back(clock: Clock) -> None:
    queue = make_queue(clock, replace(ORDERS, time_to_live=timedelta(seconds=10)))
    send(queue, "completed", "abandoned")
    completed, abandoned = receive(queue), receive(queue)
    clock.advance(30)
    queue.settle(completed.token, COMPLETE)
    queue.settle(abandoned.token, ABANDON)
    assert len(queue) == 0
    assert (queue.counts().completed, queue.counts().expired) == (1, 1)


def test_peeking_shows_every_state_in_order_and_locks_nothing(clock: Clock) -> None:
    queue = make_queue(clock)
    send(queue, "deferred", "locked", "active")
    queue.send(Content("scheduled", scheduled_for=clock.now() + 60))
    queue.settle(receive(queue).token, DEFER)
    receive(queue)
    found = queue.peek(0, 10)
    assert [each.content.message_id for each in found] == [
        "deferred",
        "locked",
        "active",
        "scheduled",
    ]
    assert [each.content.message_id for each in queue.peek(2, 2)] == ["locked", "active"]
    assert queue.counts().active == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["send", "receive", *Outcome, "renew", "wait"]), max_size=60))
def test_no_message_is_ever_lost_or_held_twice(actions: list[object]) -> None:
    clock = Clock(source=lambda: 1_700_000_000.0)
    queue = make_queue(clock)
    numbers = itertools.count()
    held: list[Lock] = []
    for action in actions:
        if action == "send":
            send(queue, str(next(numbers)))
        elif action == "receive":
            held.extend(filter(None, [queue.receive()]))
        elif action == "wait":
            clock.advance(25)
        elif held and action == "renew":
            queue.renew(held[0].token)
        elif held and isinstance(action, Outcome):
            lock = held.pop(0)
            if lock.until > clock.now():
                queue.settle(lock.token, Disposition(action))
        held = [lock for lock in held if lock.until > clock.now()]
        counts = queue.counts()
        assert len({lock.message.sequence_number for lock in held}) == len(held) == counts.locked
        assert counts.sent == counts.completed + counts.dead + len(queue)


def test_ten_thousand_messages_cost_time_in_proportion(clock: Clock) -> None:
    """Every way through the queue, at 1,000 and at 10,000 messages: nothing may be quadratic."""

    def seconds(size: int) -> float:
        queue = make_queue(
            clock,
            replace(
                ORDERS,
                time_to_live=timedelta(days=14),
                detection_window=timedelta(minutes=10),
                max_delivery_count=10,
            ),
        )
        begin = time.process_time()
        send(queue, *(f"{size}-{number}" for number in range(size)))
        for outcome in (ABANDON, RELEASE, COMPLETE):
            for lock in [receive(queue) for _ in range(size)]:
                queue.renew(lock.token)
                queue.settle(lock.token, outcome)
        assert queue.counts().completed == size
        return time.process_time() - begin

    small = min(seconds(1_000) for _ in range(3))
    assert seconds(10_000) < 40 * small  # linear is 10, quadratic 100


def test_what_was_taken_back_from_a_timetable_does_not_pile_up() -> None:
    timetable = Timetable[str]()
    timetable.add(0, 50.0, "stays")
    for number in range(1, 10_001):
        timetable.add(number, 100.0, "goes")
        assert timetable.take_back(number) == "goes"
    assert len(timetable._heap) < 100
    assert (timetable.next_moment(), list(timetable.pop_due(60.0))) == (50.0, ["stays"])
    assert timetable.next_moment() is None
