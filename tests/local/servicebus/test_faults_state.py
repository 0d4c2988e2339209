"""Which settlements a fault catches and what it does to them, without any network."""

from collections.abc import Callable

import pytest

from local.servicebus.clock import Clock
from local.servicebus.entities import Entities, QueueSettings
from local.servicebus.errors import EntityNotFound, LockLost, Refusal
from local.servicebus.faults import Faults
from local.servicebus.locks import Lock
from local.servicebus.message import Content, Disposition, Outcome
from local.servicebus.namespace import Namespace
from local.servicebus.queue import Queue
from local.servicebus.settlement import Settlement


class Client:
    """Receives from a queue and settles; remembers what it was answered."""

    def __init__(self, faults: Faults, queue: Queue) -> None:
        self._faults = faults
        self._queue = queue
        self.answers: list[Refusal | None] = []
        self.connected = True

    def receive(self) -> Lock:
        lock = self._queue.receive()
        assert lock is not None
        return lock

    def settle(self, lock: Lock, outcome: Outcome = Outcome.COMPLETED) -> None:
        self._faults.meet(
            Settlement(
                self._queue,
                lock.token,
                Disposition(outcome),
                answer=self.answers.append,
                disconnect=self._disconnect,
                is_connected=lambda: self.connected,
            )
        )

    def _disconnect(self) -> None:
        self.connected = False


def at_once(function: Callable[[], None]) -> None:
    function()


@pytest.fixture
def clock() -> Clock:
    return Clock(source=lambda: 1_700_000_000.0)


@pytest.fixture
def queue(clock: Clock) -> Queue:
    queue = Namespace(Entities(queues=(QueueSettings("orders"),)), clock).queue("orders")
    for message_id in ("o-1", "o-2"):
        queue.send(Content(message_id))
    return queue


@pytest.fixture
def faults(queue: Queue, clock: Clock) -> Faults:
    namespace = Namespace(Entities(queues=(queue.settings,)), clock)
    return Faults(at_once, lambda name: namespace.queue(name).name)


@pytest.fixture
def client(faults: Faults, queue: Queue) -> Client:
    return Client(faults, queue)


def test_without_a_fault_a_settlement_is_applied_and_answered(client: Client, queue: Queue) -> None:
    client.settle(client.receive())
    assert client.answers == [None]
    assert queue.counts().completed == 1


def test_a_fault_picks_its_message_and_strikes_as_often_as_told(
    faults: Faults, client: Client, queue: Queue
) -> None:
    faults.lose_settlement_answer("ORDERS", message_id="o-2")
    client.settle(client.receive())
    assert (client.answers, client.connected) == ([None], True)
    client.settle(client.receive())
    assert (client.answers, client.connected) == ([None], False)
    faults.expire_lock("orders", times=2)
    queue.send(Content("o-3"))
    for _ in range(3):
        client.settle(client.receive())
    assert [type(answer) for answer in client.answers[1:]] == [LockLost, LockLost, type(None)]
    assert queue.counts().completed == 3


def test_a_lost_settlement_leaves_a_lock_that_only_time_ends(
    faults: Faults, client: Client, queue: Queue, clock: Clock
) -> None:
    faults.lose_settlement("orders", message_id="o-1")
    lock = client.receive()
    client.settle(lock)
    assert (client.answers, client.connected) == ([], False)
    client.settle(lock)
    assert isinstance(client.answers[0], LockLost), "a second try does not heal it"
    assert queue.counts().locked == 1
    clock.advance(60)
    assert client.receive().message.delivery_count == 1


def test_a_settlement_held_past_its_lock_is_stale_when_released(
    faults: Faults, client: Client, queue: Queue, clock: Clock
) -> None:
    held = faults.hold_settlement("orders")
    client.settle(client.receive())
    assert held.wait(0)
    assert client.answers == []
    clock.advance(60)
    held.release()
    assert isinstance(client.answers[0], LockLost)
    assert (queue.counts().completed, queue.counts().locks_expired) == (0, 1)


def test_a_settlement_held_past_its_connection_is_lost(
    faults: Faults, client: Client, queue: Queue
) -> None:
    held = faults.hold_settlement("orders")
    client.settle(client.receive())
    client.connected = False
    held.release()
    assert client.answers == []
    assert (queue.counts().completed, queue.counts().locked) == (0, 1)


def test_a_hold_released_beforehand_holds_nothing(faults: Faults, client: Client) -> None:
    held = faults.hold_settlement("orders")
    held.release()
    client.settle(client.receive())
    assert client.answers == [None]
    assert held.wait(0)


def test_what_is_no_settlement_of_the_message_uses_up_no_fault(
    faults: Faults, client: Client, queue: Queue, clock: Clock
) -> None:
    faults.expire_lock("orders", message_id="o-1")
    faults.expire_lock("orders/$deadletterqueue")
    client.settle(client.receive(), Outcome.RELEASED)
    late = client.receive()
    clock.advance(60)
    client.settle(late)
    assert [type(answer) for answer in client.answers] == [type(None), LockLost]
    again = client.receive()
    client.settle(again)
    assert isinstance(client.answers[-1], LockLost), "the fault was still waiting"
    assert queue.counts().completed == 0


def test_a_fault_on_an_unknown_entity_is_refused(faults: Faults) -> None:
    with pytest.raises(EntityNotFound, match="ordres"):
        faults.expire_lock("ordres")
