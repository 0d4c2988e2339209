"""What settles what: one test for each row of the table, over every broker adapter."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.idempotency import (
    BusinessConflict,
    Handled,
    Inbox,
    Outcome,
    Policy,
    Protected,
    Record,
    Status,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from tests.triggers.doubles import (
    BROKERS,
    NAME,
    Broker,
    DownStore,
    Effects,
    Told,
    consumer_over,
)

ORDER = b'{"order_id": "o-1", "quantity": 1}'
OTHER_ORDER = b'{"order_id": "o-1", "quantity": 2}'
HOST_JSON = Path(__file__).parents[2] / "host.json"

type Connect = Callable[[Protected], Broker]


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(params=BROKERS, ids=lambda broker: broker.__name__)
def connect(request: pytest.FixtureRequest, effects: Effects) -> Connect:
    def connect(consumer: Protected) -> Broker:
        broker: Broker = request.param(consumer, effects)
        return broker

    return connect


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is nine hours ahead of UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


def doing(what: str) -> bytes:
    return json.dumps({"order_id": "o-1", "do": what}).encode()


async def test_a_fresh_message_is_processed_and_acknowledged(
    connect: Connect, store: MemoryStore, effects: Effects
) -> None:
    assert await connect(consumer_over(store)).deliver(ORDER) == "done"
    assert effects == [ORDER]


@pytest.mark.parametrize("count", [1, 2], ids=["sent again", "delivered again"])
async def test_a_duplicate_of_a_success_is_acknowledged_and_has_no_effect(
    connect: Connect, store: MemoryStore, effects: Effects, count: int
) -> None:
    broker = connect(consumer_over(store))
    await broker.deliver(ORDER)
    assert await broker.deliver(ORDER, count=count) == "done"
    assert effects == [ORDER]


async def test_an_inbox_s_duplicate_is_acknowledged_and_has_no_effect(
    connect: Connect, effects: Effects
) -> None:
    broker = connect(Inbox(NAME, MemoryInbox()))
    assert await broker.deliver(ORDER) == "done"
    assert await broker.deliver(ORDER, count=2) == "done"
    assert effects == [ORDER]


async def test_a_stale_message_is_acknowledged(connect: Connect) -> None:
    assert await connect(Told(Handled(outcome=Outcome.STALE))).deliver(ORDER) == "done"


async def test_a_processed_message_whose_result_was_too_large_is_acknowledged(
    connect: Connect,
) -> None:
    told = Told(Handled(outcome=Outcome.PROCESSED, result_kept=False))
    assert await connect(told).deliver(ORDER) == "done"


async def test_while_another_attempt_is_in_flight_the_message_comes_back(
    connect: Connect, store: MemoryStore, effects: Effects
) -> None:
    await store.insert(record(Status.IN_PROGRESS, lease=30.0))
    broker = connect(consumer_over(store))
    assert await broker.deliver(ORDER) == "back"
    assert broker.clock.slept, "it is held before it is given back"
    assert effects == []


async def test_other_content_under_a_used_key_is_set_aside(
    connect: Connect, store: MemoryStore, effects: Effects
) -> None:
    broker = connect(consumer_over(store))
    await broker.deliver(ORDER)
    assert await broker.deliver(OTHER_ORDER) == "aside: PayloadMismatch"
    assert effects == [ORDER]


async def test_a_refusal_for_good_is_set_aside_with_the_handler_s_reason(
    connect: Connect, store: MemoryStore
) -> None:
    broker = connect(consumer_over(store))
    assert await broker.deliver(doing("refuse")) == "aside: OutOfStock"
    assert broker.described == ["consumer process_order: there is no more of it"]


async def test_a_duplicate_of_a_failure_is_set_aside_with_the_recorded_reason_never_acknowledged(
    connect: Connect, store: MemoryStore
) -> None:
    broker = connect(consumer_over(store))
    await broker.deliver(doing("refuse"))
    assert await broker.deliver(doing("refuse"), count=2) == "aside: OutOfStock"
    assert broker.described == ["consumer process_order: there is no more of it"] * 2


async def test_a_quarantined_key_is_set_aside_and_nothing_runs(
    connect: Connect, store: MemoryStore, effects: Effects
) -> None:
    await store.insert(record(Status.QUARANTINED, failure_description="was the card charged?"))
    broker = connect(consumer_over(store))
    assert await broker.deliver(ORDER) == "aside: Quarantined"
    (said,) = broker.described
    assert said.startswith("consumer process_order: was the card charged? (look at what was done")
    assert effects == []


async def test_a_message_beyond_max_age_is_set_aside_and_nothing_runs(
    connect: Connect, store: MemoryStore, effects: Effects
) -> None:
    policy = Policy(lease=0.2, heartbeat=0.05, wait=0.2, deadline=1.0, max_age=60.0)
    broker = connect(consumer_over(store, policy))
    enqueued = datetime.now(UTC) - timedelta(seconds=90)
    assert await broker.deliver(ORDER, enqueued_time_utc=enqueued) == "aside: TooOld"
    assert effects == []


async def test_a_time_without_a_zone_is_taken_as_utc_not_as_local_time(
    connect: Connect, store: MemoryStore, far_east: None
) -> None:
    policy = Policy(lease=0.2, heartbeat=0.05, wait=0.2, deadline=1.0, max_age=600.0)
    broker = connect(consumer_over(store, policy))
    enqueued = datetime.now(UTC).replace(tzinfo=None)
    assert await broker.deliver(ORDER, enqueued_time_utc=enqueued) == "done"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "EmptyBody"),
        (b"not json", "MalformedJson"),
        (b"\xff\xfe", "MalformedJson"),
        (b"[" * 100_000, "MalformedJson"),
        (b'{"order_id": "\\ud800"}', "MalformedJson"),
    ],
    ids=["empty", "no JSON", "no UTF-8", "too deep", "half a surrogate pair"],
)
async def test_a_body_that_cannot_be_read_is_set_aside_and_nothing_runs(
    connect: Connect, store: MemoryStore, effects: Effects, body: bytes, reason: str
) -> None:
    assert await connect(consumer_over(store)).deliver(body) == f"aside: {reason}"
    assert effects == []


async def test_content_the_handler_rejects_is_set_aside_and_the_key_is_free(
    connect: Connect, store: MemoryStore
) -> None:
    broker = connect(consumer_over(store))
    assert await broker.deliver(doing("reject")) == "aside: SchemaViolation"
    assert await store.read(NAME, "o-1") is None


async def test_while_the_store_is_down_the_message_comes_back_and_nothing_runs(
    connect: Connect, effects: Effects
) -> None:
    store = DownStore()
    broker = connect(consumer_over(store))
    assert await broker.deliver(ORDER) == "back"
    assert effects == []
    assert broker.clock.slept, "it is held before it is given back"

    store.down = False
    assert await broker.deliver(ORDER, count=2) == "done"
    assert effects == [ORDER]


async def test_a_handler_that_cannot_do_it_now_has_its_message_come_back_and_its_key_freed(
    connect: Connect, store: MemoryStore
) -> None:
    broker = connect(consumer_over(store))
    assert await broker.deliver(doing("not now")) == "back"
    assert len(broker.clock.slept) == 1
    assert await store.read(NAME, "o-1") is None


@pytest.mark.parametrize(
    "error", [LookupError("bug"), BusinessConflict("taken", operation=1, status=409)]
)
async def test_any_other_exception_is_held_and_then_raised(
    connect: Connect, error: Exception
) -> None:
    broker = connect(Told(error))
    with pytest.raises(type(error)):
        await broker.deliver(ORDER)
    assert len(broker.clock.slept) == 1


async def test_an_exception_of_the_handler_frees_the_key(
    connect: Connect, store: MemoryStore
) -> None:
    broker = connect(consumer_over(store))
    with pytest.raises(LookupError):
        await broker.deliver(doing("crash"))
    assert await store.read(NAME, "o-1") is None


@pytest.mark.parametrize("error", [StoreUnavailable("down"), TransientFailure("not now")])
async def test_the_hold_grows_with_the_delivery_count_and_is_bounded(
    connect: Connect, error: Exception
) -> None:
    broker = connect(Told(error))
    for count in range(1, 11):
        await broker.deliver(ORDER, count=count)
    held = broker.clock.slept
    assert held[:5] == sorted(held[:5])
    assert held[0] < 1.01
    assert held[4] > 10
    assert max(held) <= 30


async def test_the_store_s_own_hint_is_the_least_it_is_held(connect: Connect) -> None:
    broker = connect(Told(StoreUnavailable("throttled", retry_after=7.0)))
    await broker.deliver(ORDER)
    assert broker.clock.slept == [7.0]


async def test_two_minutes_without_a_store_use_up_no_message_s_deliveries(
    connect: Connect,
) -> None:
    broker = connect(Told(StoreUnavailable("down")))
    queues = json.loads(HOST_JSON.read_text())["extensions"]["queues"]
    storage = type(broker).__name__ == "StorageQueue"
    deliveries = queues["maxDequeueCount"] if storage else 10
    apart = float(queues["visibilityTimeout"][-2:]) if storage else 60.0 if broker.binding else 0.0

    for count in range(1, deliveries):
        await broker.deliver(ORDER, count=count)

    assert sum(broker.clock.slept) + apart * (deliveries - 1) > 120


def record(status: Status, **fields: Any) -> Record:
    return Record(consumer=NAME, key="o-1", status=status, owner="another attempt", **fields)
