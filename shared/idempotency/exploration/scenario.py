"""What is explored: the messages, the form of the consumer, the numbers, and the seams for mutants."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from ..clock import Clock
from ..consumer import Consumer
from ..effects import Effects
from ..inbox import Inbox
from ..inbox_store import InboxStore, Operation, Refused, StoredDocument
from ..protected import Protected
from ..records import Policy, Record, Stored
from ..store import Store
from ..stores.memory import MemoryStore
from ..stores.memory_inbox import MemoryInbox
from .plan import Plan

KEY = "order-1"
CONSUMER = "explored"

type Form = Literal["two-phase", "inbox"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the broker: all have one key; ``content`` is what the fingerprint is made of.

    Messages with the same ``sequence`` are one message that the broker hands out twice at once,
    because a lock was lost: ``redelivered`` marks the second.
    """

    name: str
    content: str = "first"
    sequence: int = 1
    redelivered: bool = False


class InboxUnderTest(Protocol):
    """What an inbox store must offer to be explored: calls that never wait, and a look inside."""

    async def read(self, partition: str, id_: str) -> StoredDocument | None: ...

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None: ...

    def documents(self) -> Mapping[tuple[str, str], Mapping[str, Any]]: ...


class StoreUnderTest(Protocol):
    """A store whose calls never wait: each is one step of a schedule."""

    async def read(self, consumer: str, key: str) -> Stored | None: ...

    async def insert(self, record: Record) -> Stored | None: ...

    async def replace(self, record: Record, etag: str) -> Stored | None: ...

    async def delete(self, record: Record, etag: str) -> bool: ...


type ConsumerFactory = Callable[[Store, Clock, Policy], Protected]
type StepsFactory = Callable[[Store, Clock, Policy, Effects], Protected]
type InboxFactory = Callable[[InboxStore, Clock, Policy], Protected]

POLICY = Policy(lease=30, heartbeat=15, wait=45, deadline=20, max_delivery_count=10)


def _two_phase(store: Store, clock: Clock, policy: Policy) -> Protected:
    return Consumer(CONSUMER, store, policy=policy, clock=clock)


def with_effects(store: Store, clock: Clock, policy: Policy, effects: Effects) -> Protected:
    return Consumer(CONSUMER, store, policy=policy, effects=effects, clock=clock)


def _inbox(store: InboxStore, clock: Clock, policy: Policy) -> Protected:
    return Inbox(CONSUMER, store, policy=policy, clock=clock)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One exploration.

    ``faults`` bounds how many faults one schedule may have. ``one_process``: the deliveries run in
    one process with one consumer, and die together; otherwise each has a process of its own. The
    factories are the seams at which a test puts a mutant in the place of an honest part.
    """

    name: str
    messages: tuple[Message, ...]
    form: Form = "two-phase"
    faults: int = 2
    one_process: bool = False
    policy: Policy = POLICY
    store: Callable[[Clock], StoreUnderTest] = MemoryStore
    fences: bool = True
    """Whether the store honours etags: then a late request whose etag is stale is forgotten."""
    consumer: ConsumerFactory = _two_phase
    plan: Plan | None = None
    """The handler's named steps; without a plan it is one effect."""
    consumer_of_steps: StepsFactory = with_effects
    """Used in the place of ``consumer`` where there is a plan, with the effects that it states."""
    inbox_store: Callable[[Clock], InboxUnderTest] = MemoryInbox
    inbox: InboxFactory = _inbox
