"""Nothing is lost and nothing invented, wherever processes die and answers are lost: enumerated.

A delivery is handled, redelivered until it is acknowledged, and sweepers come afterwards. Every call of
the store and of the broker is a point at which the process may die, before or after the call takes
effect, or at which its request or its answer is lost. All single faults and all pairs of faults are
tried, on a store that is searched for pending messages and on one with pointers to them.
"""

import itertools
from collections.abc import Awaitable, Callable

import pytest

from shared.idempotency import (
    Inbox,
    Message,
    Outbox,
    Outcome,
    Policy,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.relay import FORGET_AFTER
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, a_delivery
from tests.unit.posts import GRACE, STORES, Line, PostBench

FAULTS = ("dies before", "dies after", "request lost", "answer lost")
MOST_CALLS = 40


class Died(BaseException):
    """The process is no more: nothing in it may catch this."""


class World:
    """A store and a broker that outlive processes, and faults at some of the calls to them."""

    def __init__(self, *, announces: bool, faults: dict[int, str]) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock, announces=announces)
        self.arrived: list[Message] = []
        self.faults = faults
        self.calls: list[str] = []

    async def call[T](self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = self.faults.get(len(self.calls))
        self.calls.append(name)
        lost = TransientFailure if name == "send" else StoreUnavailable
        if fault == "dies before":
            raise Died
        if fault == "request lost":
            raise lost(name)
        answer = await call()
        if fault == "dies after":
            raise Died
        if fault == "answer lost":
            raise lost(name)
        return answer

    async def send(self, message: Message) -> None:
        async def arrive() -> None:
            self.arrived.append(message)

        await self.call("send", arrive)

    def pending(self) -> list[str]:
        return [id_ for _, id_ in self.store.documents() if id_.startswith("!=pending")]


class Process:
    """One process: a consumer and a sweeper of its own."""

    def __init__(self, world: World) -> None:
        line = Line(world, world.store)
        self.outbox = Outbox(line, world.send, grace=GRACE, clock=world.clock)
        self.inbox = Inbox(
            "process_order",
            line,
            entity_is_marker=True,
            outbox=self.outbox,
            policy=Policy(memory=0.0),
            clock=world.clock,
        )


async def played(world: World, work: Callable[[], Awaitable[str]]) -> list[Outcome]:
    """Deliver until it is acknowledged, then sweep until all is quiet; what deliveries were told."""
    told: list[Outcome] = []
    for delivery in range(5):
        redelivered = delivery > 0
        try:
            handled = await world.clock.run(
                Process(world).inbox.handle(a_delivery(redelivered=redelivered), work, CODEC)
            )
        except (Died, StoreUnavailable):
            continue
        told.append(handled.outcome)
        break
    for _ in range(5):
        await world.clock.advance(FORGET_AFTER)
        try:
            await world.clock.run(Process(world).outbox.sweep())
        except (Died, StoreUnavailable):
            continue
    return told


def check(world: World, told: list[Outcome]) -> None:
    documents = world.store.documents()
    assert told in ([Outcome.PROCESSED], [Outcome.DUPLICATE]), "acknowledged in the end"
    assert len([id_ for _, id_ in documents if not id_.startswith("!=")]) == 1, "one order"
    arrived: dict[bytes, set[str]] = {}
    for message in world.arrived:
        arrived.setdefault(message.body, set()).add(message.message_id)
    assert arrived.keys() == {b"placed", b"noted"}, "lost, or invented"
    assert all(len(ids) == 1 for ids in arrived.values()), "a repeat under another MessageId"
    assert world.pending() == [], "what was sent is cleared"
    assert world.store.pointers == {}, "no pointer lives for ever"


async def calls_of(announces: bool) -> int:
    """How many calls the longest course without faults takes: the first sweep included."""
    world = World(announces=announces, faults={})
    await played(world, PostBench().work)
    return len(world.calls)


@pytest.mark.parametrize("name", STORES)
async def test_wherever_one_or_two_faults_strike_nothing_is_lost(name: str) -> None:
    announces = STORES[name]
    # a fault makes more calls: a redelivery, a sweep with something to do
    points = range(await calls_of(announces) + 3)
    assert len(points) < MOST_CALLS
    work = PostBench().work
    single = [{point: fault} for point in points for fault in FAULTS]
    pairs = [
        {first: one, second: other}
        for first, second in itertools.combinations(points, 2)
        for one, other in itertools.product(FAULTS, repeat=2)
    ]
    struck = set()
    repeats = 0
    for faults in ({}, *single, *pairs):
        world = World(announces=announces, faults=faults)
        told = await played(world, work)
        try:
            check(world, told)
        except AssertionError as error:
            error.add_note(f"with {faults}: {world.calls}")
            raise
        struck |= {world.calls[point] for point in faults if point < len(world.calls)}
        repeats += len(world.arrived) > 2
    expected = {"commit", "send", "due", "read", "postpone"}
    assert struck >= expected | ({"announce", "forget"} if announces else set()), "all were struck"
    assert repeats, "at least once is not exactly once"


@pytest.mark.parametrize("name", STORES)
async def test_what_is_never_committed_is_never_sent(name: str) -> None:
    announces = STORES[name]
    for point in range(4):
        world = World(announces=announces, faults=dict.fromkeys(range(point, 10), "dies before"))
        process = Process(world)
        with pytest.raises(Died):
            await world.clock.run(process.inbox.handle(a_delivery(), PostBench().work, CODEC))
        committed = bool(world.store.documents())
        world.faults.clear()
        for _ in range(3):
            await world.clock.advance(FORGET_AFTER)
            await world.clock.run(Process(world).outbox.sweep())
        assert bool(world.arrived) == committed
        assert world.store.pointers == {}
