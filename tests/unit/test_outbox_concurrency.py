"""Sweepers beside live traffic and beside each other: every order of their calls, enumerated.

The sweepers act without any grace, as if the process that committed were slow by a minute.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

from shared.idempotency import Inbox, Message, Outbox, Policy
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, a_delivery
from tests.unit.posts import STORES, Line, PostBench


class Turns:
    """One party of a schedule: each of its calls waits for its turn."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[None] | None = None

    async def call[T](self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.waiting = asyncio.get_running_loop().create_future()
        await self.waiting
        return await call()


class Meeting:
    """A delivery and sweepers on one store, whose calls take turns as they are told."""

    def __init__(self, *, announces: bool, sweepers: int) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock, announces=announces)
        self.arrived: list[Message] = []
        work = PostBench().work
        live = Turns()
        outbox = self._outbox(live)
        inbox = Inbox(
            "process_order",
            Line(live, self.store),
            entity_is_marker=True,
            outbox=outbox,
            policy=Policy(memory=0.0),
            clock=self.clock,
        )
        self.turns = [live]
        self.tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(inbox.handle(a_delivery(), work, CODEC))
        ]
        for _ in range(sweepers):
            turns = Turns()
            self.turns.append(turns)
            self.tasks.append(asyncio.create_task(self._outbox(turns).sweep()))

    def _outbox(self, turns: Turns) -> Outbox:
        async def send(message: Message) -> None:
            async def arrive() -> None:
                self.arrived.append(message)

            await turns.call("send", arrive)

        return Outbox(Line(turns, self.store), send, grace=0.0, clock=self.clock)

    async def able(self) -> list[int]:
        """Whose turn it may be, once everybody waits or has ended."""
        while True:
            await asyncio.sleep(0)
            able = []
            for number, (turns, task) in enumerate(zip(self.turns, self.tasks, strict=True)):
                if task.done():
                    continue
                if turns.waiting is None or turns.waiting.done():
                    break
                able.append(number)
            else:
                return able

    def take_turn(self, number: int) -> None:
        waiting = self.turns[number].waiting
        assert waiting is not None
        waiting.set_result(None)

    async def check(self) -> int:
        """Everything was sent and nothing is left; how many were sent again."""
        await asyncio.gather(*self.tasks)
        await self.clock.advance(10_000.0)
        last = Outbox(self.store, self._take, grace=0.0, clock=self.clock)
        for _ in range(2):
            await last.sweep()
        ids = {(message.body, message.message_id) for message in self.arrived}
        assert {body for body, _ in ids} == {b"placed", b"noted"}, "lost"
        assert len(ids) == 2, "a repeat under another MessageId"
        assert len(self.store.documents()) == 1
        assert self.store.pointers == {}
        return len(self.arrived) - 2

    async def _take(self, message: Message) -> None:
        self.arrived.append(message)


async def played(meeting: Meeting, choose: Callable[[list[int]], int]) -> int:
    while able := await meeting.able():
        meeting.take_turn(choose(able))
    return await meeting.check()


class Choices:
    """All schedules, one after the other: the last choice that can still be another is changed."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        self._at = 0

    def __iter__(self) -> Iterator[None]:
        while True:
            self._at = 0
            yield
            while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
                self._taken.pop()
            if not self._taken:
                return
            index, of = self._taken.pop()
            self._taken.append((index + 1, of))

    def choose(self, able: list[int]) -> int:
        if self._at == len(self._taken):
            self._taken.append((0, len(able)))
        index, _ = self._taken[self._at]
        self._at += 1
        return able[index]


@pytest.mark.parametrize("name", STORES)
async def test_a_sweeper_beside_a_delivery_loses_nothing_in_any_order_of_their_calls(
    name: str,
) -> None:
    choices = Choices()
    repeats = []
    for _ in choices:
        meeting = Meeting(announces=STORES[name], sweepers=1)
        repeats.append(await played(meeting, choices.choose))
    assert len(repeats) > 20
    assert min(repeats) == 0
    assert max(repeats) == 2, "they may both send; nobody sends three times"


@pytest.mark.parametrize("name", STORES)
async def test_two_sweepers_beside_a_delivery_lose_nothing_and_one_of_them_claims(
    name: str,
) -> None:
    chance = random.Random(1)  # noqa: S311 - the same schedules in every run
    repeats = [
        await played(Meeting(announces=STORES[name], sweepers=2), chance.choice) for _ in range(400)
    ]
    assert max(repeats) == 2, "of two sweepers one sends"
