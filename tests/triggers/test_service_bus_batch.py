"""Service Bus in batches: every message is handled and settled by itself."""

import asyncio
import inspect
import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    Delivery,
    ResultCodec,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import service_bus_batch
from shared.idempotency.triggers.body_keys import json_key
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement
from tests.triggers.doubles import (
    DownStore,
    Effects,
    InstantClock,
    consumer_over,
    service_bus_message,
)


class Actions:
    """The worker's settlement client; ``done`` is what became of each message, by its lock token."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}

    def complete(self, message: Any) -> None:
        self._settle(message, "done")

    def deadletter(
        self, message: Any, deadletter_reason: str, deadletter_error_description: str
    ) -> None:
        self._settle(message, f"aside: {deadletter_reason}")

    def _settle(self, message: Any, how: str) -> None:
        assert message.lock_token not in self.done, "a message is settled once"
        self.done[message.lock_token] = how


class Batches:
    """A function that gets batches; `deliver` tells what became of each message, by its lock token."""

    def __init__(self, store: MemoryStore, **options: Any) -> None:
        self.effects = Effects()
        self.seen: list[Any] = []
        self.clock = InstantClock()
        self.consumer = options.pop("consumer", None) or consumer_over(store)

        async def process(message: func.ServiceBusMessage) -> None:
            self.seen.append(message)
            self.effects.handle(message.get_body())

        self.function: Any = service_bus_batch.idempotent(
            self.consumer,
            key=json_key("order_id"),
            settlement=BindingSettlement(),
            clock=self.clock,
            **options,
        )(process)

    async def deliver(self, *messages: ServiceBusMessage) -> dict[str, str]:
        actions = Actions()
        await self.function(list(messages), actions)
        return actions.done


def order(order_id: str, token: str, *, count: int = 1, **content: Any) -> ServiceBusMessage:
    body = json.dumps({"order_id": order_id, **content}).encode()
    return service_bus_message(body, "whatever", lock_token=token, delivery_count=count)


async def test_each_message_is_settled_by_its_own_outcome() -> None:
    batches = Batches(MemoryStore())
    await batches.deliver(order("o-0", "before", amount=1))

    told = await batches.deliver(
        order("o-1", "new"),
        order("o-0", "duplicate", amount=1),
        order("o-0", "other content", amount=2),
        order("o-2", "refused", do="refuse"),
        order("", "no key"),
        service_bus_message(b"{", None, lock_token="no json"),
        order("o-3", "last"),
    )

    assert told == {
        "new": "done",
        "duplicate": "done",
        "other content": "aside: PayloadMismatch",
        "refused": "aside: OutOfStock",
        "no key": "aside: MissingKey",
        "no json": "aside: MalformedJson",
        "last": "done",
    }
    assert [json.loads(body)["order_id"] for body in batches.effects] == ["o-0", "o-1", "o-3"]


async def test_one_that_fails_neither_blocks_nor_repeats_its_neighbours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches = Batches(MemoryStore())
    batch = [order("o-1", "1"), order("o-2", "2", do="crash"), order("o-3", "3")]

    assert await batches.deliver(*batch) == {"1": "done", "3": "done"}
    assert "no such customer" in caplog.text
    assert await batches.deliver(order("o-2", "2 again", count=2, do="crash")) == {}
    assert len(batches.effects) == 2


async def test_duplicates_inside_one_batch_wait_for_nobody() -> None:
    batches = Batches(MemoryStore())
    told = await batches.deliver(*(order("o-1", str(number)) for number in range(5)))
    assert set(told.values()) == {"done"}
    assert len(told) == 5
    assert len(batches.effects) == 1
    assert batches.clock.slept == []


async def test_claims_of_different_keys_run_at_the_same_time_up_to_the_bound() -> None:
    class Slow(MemoryStore):
        running = most = 0

        async def insert(self, record: Any) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(5):
                await asyncio.sleep(0)
            self.running -= 1
            return await super().insert(record)

    store = Slow()
    batches = Batches(store, concurrency=4)
    await batches.deliver(*(order(f"o-{number}", str(number)) for number in range(12)))
    assert store.most == 4
    assert len(batches.effects) == 12


async def test_what_comes_back_is_left_unsettled_and_the_batch_is_held_once() -> None:
    batches = Batches(MemoryStore())
    told = await batches.deliver(
        order("o-1", "1", do="not now"), order("o-2", "2", do="not now"), order("o-3", "3")
    )
    assert told == {"3": "done"}
    [held] = [seconds for seconds in batches.clock.slept if seconds]
    assert 0.5 < held <= 1.0


async def test_while_the_store_is_down_nothing_runs_and_the_rest_is_not_even_tried() -> None:
    class Counting(DownStore):
        asked = 0

        def _answer(self) -> None:
            self.asked += 1
            super()._answer()

    store = Counting()
    store.error = StoreUnavailable("the store is down")
    batches = Batches(store, concurrency=1)
    assert await batches.deliver(order("o-1", "0")) == {}
    for_one = store.asked
    store.asked = 0
    assert await batches.deliver(*(order(f"o-{n}", str(n)) for n in range(9))) == {}
    assert store.asked == for_one
    assert batches.effects == []

    store.down = False
    assert await batches.deliver(order("o-1", "again")) == {"again": "done"}


async def test_a_store_that_is_down_stays_so_for_the_batch_whatever_else_fails_meanwhile() -> None:
    given_up = asyncio.Event()

    class Clock(InstantClock):
        async def sleep(self, seconds: float) -> None:
            given_up.set()  # the adapter is about to give back what met the store
            await super().sleep(seconds)

    class Failing(MemoryStore):
        async def insert(self, record: Any) -> Any:
            if record.key == "o-2":
                raise StoreUnavailable("the store is down")
            return await super().insert(record)

    seen: list[bytes] = []

    async def process(message: func.ServiceBusMessage) -> None:
        seen.append(message.get_body())
        await given_up.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        raise TransientFailure("not now")

    function: Any = service_bus_batch.idempotent(
        consumer_over(Failing()),
        key=json_key("order_id"),
        settlement=BindingSettlement(),
        clock=Clock(),
        concurrency=2,
    )(process)
    actions = Actions()
    # the last is of the first one's key: it comes when both others have failed
    async with asyncio.timeout(60):
        await function([order("o-1", "1"), order("o-2", "2"), order("o-1", "3")], actions)
    assert actions.done == {}
    assert seen == [b'{"order_id": "o-1"}']


async def test_another_attempt_in_flight_is_not_waited_for() -> None:
    store = MemoryStore()
    patient = Consumer("process_order", store)
    batches = Batches(store, consumer=patient)
    other = Consumer("process_order", store)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await go_on.wait()

    elsewhere = asyncio.create_task(other.handle(Delivery(key="o-1"), work, ResultCodec()))
    await started.wait()
    async with asyncio.timeout(10):  # the policy would wait for 45 s
        told = await batches.deliver(order("o-1", "1"), order("o-2", "2"))
    go_on.set()
    await elsewhere
    assert told == {"2": "done"}


async def test_a_message_is_not_begun_when_too_little_of_its_lock_is_left() -> None:
    class Passing(InstantClock):
        time = 0.0

        def monotonic(self) -> float:
            return self.time

    batches = Batches(MemoryStore(), concurrency=1, lock=60.0)
    clock = Passing()

    async def slow(message: func.ServiceBusMessage) -> None:
        clock.time += 31.0

    function: Any = service_bus_batch.idempotent(
        batches.consumer,
        key=json_key("order_id"),
        settlement=BindingSettlement(),
        clock=clock,
        concurrency=1,
    )(slow)
    actions = Actions()
    await function([order("o-1", "1"), order("o-2", "2")], actions)
    assert actions.done == {"1": "done"}


async def test_what_could_be_another_message_s_is_not_shown_to_the_handler() -> None:
    """The host's arrays of ids lose their empty entries, so an id may be that of a neighbour."""
    batches = Batches(MemoryStore())
    message = service_bus_message(
        b'{"order_id": "o-1"}',
        "neighbour's",
        lock_token="1",
        correlation_id="neighbour's",
        session_id="neighbour's",
        properties={"mine": True},
    )
    assert await batches.deliver(message) == {"1": "done"}
    [seen] = batches.seen
    assert (seen.message_id, seen.correlation_id, seen.session_id) == (None, None, None)
    assert seen.application_properties == {"mine": True}


async def test_where_the_host_completes_one_that_comes_back_brings_back_all_and_nothing_runs_again() -> (
    None
):
    sent: list[tuple[str | None, str]] = []
    effects = Effects()

    async def quarantine(message: func.ServiceBusMessage, reason: str, description: str) -> None:
        sent.append((message.message_id, reason))

    async def process(message: func.ServiceBusMessage) -> None:
        effects.handle(message.get_body())

    function: Any = service_bus_batch.idempotent(
        consumer_over(MemoryStore()),
        key=json_key("order_id"),
        settlement=QuarantineSettlement(quarantine),
        clock=InstantClock(),
    )(process)
    assert [*inspect.signature(function).parameters] == ["messages"]  # all that the worker can fill
    batch = [order("o-1", "1"), order("", "2"), order("o-3", "3", do="not now")]
    for _ in range(2):
        with pytest.raises(TransientFailure):
            await function(batch)
    assert len(effects) == 1
    assert sent == [(None, "MissingKey")] * 2


async def test_without_the_worker_s_client_nothing_runs() -> None:
    batches = Batches(MemoryStore())
    with pytest.raises(ConfigurationError, match="actions="):
        await batches.function([order("o-1", "1")])
    assert batches.effects == []


@pytest.mark.parametrize("options", [{"lock": 0}, {"concurrency": 0}])
def test_numbers_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="process_order: concurrency and lock"):
        Batches(MemoryStore(), **options)
