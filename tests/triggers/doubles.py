"""What the adapters' tests are made of: messages as the host makes them, and stand-ins around them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
from azure.functions.queue import QueueMessage
from azure.functions.servicebus import ServiceBusMessage

from shared.idempotency import (
    Consumer,
    Delivery,
    Handled,
    MalformedContent,
    Observer,
    PermanentFailure,
    Policy,
    Protected,
    Record,
    ResultCodec,
    Stored,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.events import ignore
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import service_bus, storage_queue
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement

NAME = "process_order"
QUICK = Policy(lease=0.2, heartbeat=0.05, wait=0.2, deadline=1.0, memory=0)


def service_bus_message(
    body: bytes = b'{"order_id": "o-1"}', message_id: Any = "o-1", **fields: Any
) -> ServiceBusMessage:
    """A message as the host hands it over; ``properties`` are its application properties."""
    properties = fields.pop("properties", {})
    defaults: dict[str, Any] = {
        "delivery_count": 1,
        "sequence_number": 1,
        "lock_token": "l-1",
        "enqueued_time_utc": datetime.now(UTC),
    }
    return ServiceBusMessage(
        body=body,
        message_id=message_id,
        application_properties=properties,
        user_properties=properties,
        **{**defaults, **fields},
    )


def queue_message(body: bytes = b'{"order_id": "o-1"}', **fields: Any) -> QueueMessage:
    """A Storage queue message as the host hands it over."""
    defaults: dict[str, Any] = {
        "id": "q-1",
        "dequeue_count": 1,
        "insertion_time": datetime.now(UTC),
        "pop_receipt": "p-1",
    }
    message: QueueMessage = QueueMessage(body=body, **{**defaults, **fields})  # type: ignore[no-untyped-call]
    return message


class InstantClock:
    """A clock on which nobody waits; ``slept`` holds what was asked for, in seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return datetime.now(UTC).timestamp()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class RecordedActions:
    """The worker's settlement client; ``done`` holds what it was asked for, as far as it worked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.done: list[tuple[str, ...]] = []
        self._error = error

    def complete(self, message: Any) -> None:
        self._settle("complete")

    def deadletter(
        self, message: Any, deadletter_reason: str, deadletter_error_description: str
    ) -> None:
        self._settle("dead-letter", deadletter_reason, deadletter_error_description)

    def _settle(self, *what: str) -> None:
        if self._error:
            raise self._error
        self.done.append(what)


class DownStore(MemoryStore):
    """A store that does not answer while ``down``; ``error`` is what it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.down = True
        self.error: Exception = StoreUnavailable("the store is down")

    async def read(self, consumer: str, key: str) -> Stored | None:
        self._answer()
        return await super().read(consumer, key)

    async def insert(self, record: Record) -> Stored | None:
        self._answer()
        return await super().insert(record)

    def _answer(self) -> None:
        if self.down:
            raise self.error


class Told:
    """A consumer that gives the outcome, or raises the error, it was told to."""

    name = NAME

    def __init__(self, outcome: Handled[Any] | Exception) -> None:
        self._outcome = outcome

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class Effects(list[bytes]):
    """A handler's effects: the bodies it has processed. What it does besides, the body says."""

    def handle(self, body: bytes) -> None:
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        match content.get("do") if isinstance(content, dict) else None:
            case "refuse":
                raise PermanentFailure("OutOfStock", "there is no more of it")
            case "not now":
                raise TransientFailure("the provider is down")
            case "reject":
                raise MalformedContent("order_id is no text", reason="SchemaViolation")
            case "crash":
                raise LookupError("no such customer")
        self.append(body)


class Broker:
    """One function of one adapter, and what becomes of the messages it is handed.

    `deliver` answers `done`, `back` or `aside: <reason>`; any exception but the one that is meant
    to bring a message back is raised. ``described`` has the descriptions of what was set aside.
    """

    binding = False

    def __init__(self, consumer: Protected, effects: Effects, **options: Any) -> None:
        self.clock = InstantClock()
        self.described: list[str] = []
        self.function = self._protected(consumer, effects, clock=self.clock, **options)

    def _protected(self, consumer: Protected, effects: Effects, **options: Any) -> Any:
        raise NotImplementedError

    async def deliver(self, body: bytes, **fields: Any) -> str:
        raise NotImplementedError


class ServiceBusByBinding(Broker):
    """Service Bus, settled by the binding."""

    binding = True

    def _protected(self, consumer: Protected, effects: Effects, **options: Any) -> Any:
        async def process(message: func.ServiceBusMessage) -> None:
            effects.handle(message.get_body())

        protect = service_bus.idempotent(consumer, settlement=BindingSettlement(), **options)
        return protect(process)

    async def deliver(self, body: bytes, *, count: int = 1, **fields: Any) -> str:
        actions = RecordedActions()
        message = service_bus_message(body, delivery_count=count, **fields)
        await self.function(message, actions=actions)
        assert len(actions.done) <= 1, "a message is settled once"
        match actions.done:
            case [("complete",)]:
                return "done"
            case [("dead-letter", reason, description)]:
                self.described.append(description)
                return f"aside: {reason}"
        return "back"


class ServiceBusByQuarantine(Broker):
    """Service Bus without the binding: a quarantine queue, and the host completes."""

    def _protected(self, consumer: Protected, effects: Effects, **options: Any) -> Any:
        self._sent: list[tuple[str, str]] = []

        def process(message: func.ServiceBusMessage) -> None:
            effects.handle(message.get_body())

        async def quarantine(message: Any, reason: str, description: str) -> None:
            self._sent.append((reason, description))

        settlement = QuarantineSettlement(quarantine)
        return service_bus.idempotent(consumer, settlement=settlement, **options)(process)

    async def deliver(self, body: bytes, *, count: int = 1, **fields: Any) -> str:
        message = service_bus_message(body, delivery_count=count, **fields)
        return await _invoked(self, self.function(message), self._sent)


class StorageQueue(Broker):
    """A Storage queue."""

    def _protected(self, consumer: Protected, effects: Effects, **options: Any) -> Any:
        self._sent: list[tuple[str, str]] = []

        async def process(message: func.QueueMessage) -> None:
            effects.handle(message.get_body())

        async def poison_queue(message: Any, reason: str, description: str) -> None:
            self._sent.append((reason, description))

        key = storage_queue.json_key("order_id")
        protect = storage_queue.idempotent(consumer, key=key, poison_queue=poison_queue, **options)
        return protect(process)

    async def deliver(self, body: bytes, *, count: int = 1, **fields: Any) -> str:
        if enqueued := fields.pop("enqueued_time_utc", None):
            fields["insertion_time"] = enqueued
        message = queue_message(body, dequeue_count=count, **fields)
        return await _invoked(self, self.function(message), self._sent)


async def _invoked(broker: Broker, invocation: Awaitable[None], sent: list[tuple[str, str]]) -> str:
    sent.clear()
    try:
        await invocation
    except (TransientFailure, StoreUnavailable):
        return "back"
    if not sent:
        return "done"
    [(reason, description)] = sent
    broker.described.append(description)
    return f"aside: {reason}"


BROKERS = (ServiceBusByBinding, ServiceBusByQuarantine, StorageQueue)


def consumer_over(
    store: MemoryStore, policy: Policy = QUICK, observer: Observer = ignore
) -> Consumer:
    """The two-phase consumer that the tests' records are of."""
    return Consumer(NAME, store, policy=policy, observer=observer)
