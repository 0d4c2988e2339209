"""Any function, protected without a trigger: same parameters, same result, one effect per key."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    DeliveryRejected,
    Inbox,
    InvalidKey,
    MissingKey,
    PermanentFailure,
    Policy,
    ResultUnavailable,
    StoreUnavailable,
    TransientFailure,
    current_attempt,
    current_unit,
    idempotent,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from tests.unit.doubles import Wire, WiredStore


@dataclass(frozen=True)
class Order:
    order_id: str
    total: Decimal = Decimal("1.50")


@dataclass(frozen=True)
class Balance:
    points: int
    worth: Decimal


def order_id(order: Order, points: int = 0) -> str:
    return order.order_id


def a_consumer(**policy: Any) -> Consumer:
    quick: dict[str, Any] = {"lease": 0.2, "heartbeat": 0.05, "wait": 0.3, "deadline": 1.0}
    return Consumer("loyalty", MemoryStore(), policy=Policy(**(quick | policy)))


async def test_the_effect_is_had_once_and_every_caller_gets_the_result() -> None:
    credited: list[int] = []

    @idempotent(a_consumer(), key=order_id)
    async def credit(order: Order, points: int = 0) -> Balance:
        credited.append(points)
        return Balance(points, order.total)

    answers = [await credit(Order("o-1"), 10) for _ in range(3)]
    assert answers == [Balance(10, Decimal("1.50"))] * 3
    assert await credit(Order("o-2"), 20) == Balance(20, Decimal("1.50"))
    assert credited == [10, 20]


async def test_callers_at_once_get_one_result() -> None:
    credited: list[int] = []

    @idempotent(a_consumer(), key=order_id)
    async def credit(order: Order, points: int = 0) -> int:
        credited.append(points)
        await asyncio.sleep(0.01)
        return len(credited)

    assert await asyncio.gather(*(credit(Order("o-1"), 10) for _ in range(4))) == [1] * 4


async def test_a_plain_function_is_awaited_and_runs_beside_the_loop() -> None:
    @idempotent(a_consumer(), key=order_id)
    def credit(order: Order, points: int = 0) -> tuple[str, int]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return current_attempt().key, points

    assert [await credit(Order("o-1"), 3) for _ in range(2)] == [("o-1", 3)] * 2


async def test_how_an_argument_is_passed_makes_no_other_content() -> None:
    @idempotent(a_consumer(), key=order_id)
    async def credit(order: Order, points: int = 0) -> int:
        return points

    assert await credit(Order("o-1")) == 0
    assert await credit(Order("o-1"), 0) == 0
    assert await credit(order=Order("o-1"), points=0) == 0


async def test_other_arguments_under_the_same_key_are_refused_and_named() -> None:
    @idempotent(a_consumer(), key=order_id)
    async def credit(order: Order, points: int = 0) -> int:
        return points

    await credit(Order("o-1"), 10)
    with pytest.raises(DeliveryRejected, match=r"loyalty, key 'o-1'.*changed: points") as refused:
        await credit(Order("o-1"), 11)
    assert refused.value.reason == "PayloadMismatch"


@pytest.mark.parametrize("chosen", [None, lambda order, points: order])
async def test_only_the_chosen_content_is_compared(chosen: Callable[..., object] | None) -> None:
    @idempotent(a_consumer(), key=order_id, content=chosen)
    async def credit(order: Order, points: int) -> int:
        return points

    assert await credit(Order("o-1"), 10) == await credit(Order("o-1"), 11) == 10


async def test_bytes_are_compared_as_they_are() -> None:
    @idempotent(a_consumer(), key=lambda body: "row-7", content=lambda body: body)
    async def load(body: bytes) -> None: ...

    await load(b"\xff 1")
    await load(b"\xff 1")
    with pytest.raises(DeliveryRejected, match="row-7"):
        await load(b"\xff 2")


async def test_sets_and_dictionaries_are_compared_whatever_their_order() -> None:
    @idempotent(a_consumer(), key=lambda tags, sizes: "k")
    async def label(tags: set[str], sizes: dict[str, int]) -> None: ...

    await label({"a", "b", "c"}, {"x": 1, "y": 2})
    await label({"c", "b", "a"}, {"y": 2, "x": 1})


async def test_content_that_cannot_be_written_is_an_error_that_names_the_way_out() -> None:
    ran: list[object] = []

    @idempotent(a_consumer(), key=lambda client: "k")
    async def call(client: object) -> None:
        ran.append(client)

    with pytest.raises(ConfigurationError, match=r"call of .*call.* content="):
        await call(object())
    assert ran == []


@pytest.mark.parametrize(
    ("key", "error"), [(None, MissingKey), ("", MissingKey), ("k" * 1025, InvalidKey)]
)
async def test_without_a_key_nothing_runs(key: str | None, error: type[Exception]) -> None:
    @idempotent(a_consumer(), key=lambda: key)
    async def never() -> None:
        pytest.fail("ran unprotected")

    with pytest.raises(error, match=r"key for .*never"):
        await never()


async def test_while_another_attempt_is_in_flight_the_caller_is_told_when_to_come_back() -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    @idempotent(a_consumer(), key=lambda: "k", wait=0)
    async def slow() -> str:
        begun.set()
        await let_go.wait()
        return "done"

    first = asyncio.create_task(slow())
    await begun.wait()
    with pytest.raises(TransientFailure, match=r"loyalty, key 'k': .*in flight") as told:
        await slow()
    assert told.value.retry_after is not None
    assert told.value.retry_after >= 1
    let_go.set()
    assert [await first, await slow()] == ["done", "done"]


async def test_a_refusal_for_good_is_raised_again_to_every_duplicate() -> None:
    tried: list[int] = []

    @idempotent(a_consumer(), key=lambda: "k")
    async def refuse() -> None:
        tried.append(1)
        raise PermanentFailure("NoSuchCustomer", "the customer is closed")

    for _ in range(2):
        with pytest.raises(PermanentFailure, match="NoSuchCustomer: the customer is closed"):
            await refuse()
    assert tried == [1]


async def test_what_the_function_raises_comes_through_and_frees_the_key() -> None:
    tried: list[int] = []

    @idempotent(a_consumer(), key=lambda: "k")
    async def at_the_second_try() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise LookupError("not yet")
        return len(tried)

    with pytest.raises(LookupError, match="not yet"):
        await at_the_second_try()
    assert await at_the_second_try() == 2


async def test_a_result_that_is_not_kept_is_told_to_the_first_caller_too() -> None:
    @idempotent(a_consumer(max_result_bytes=10), key=lambda: "k")
    async def large() -> str:
        return "x" * 100

    for _ in range(2):
        with pytest.raises(ResultUnavailable, match="loyalty, key 'k': the work is done"):
            await large()


async def test_a_store_that_is_down_runs_nothing() -> None:
    policy = Policy(lease=0.2, heartbeat=0.05, wait=0.3, deadline=1.0)
    wire = Wire()
    wire.down = True

    @idempotent(
        Consumer("loyalty", WiredStore(MemoryStore(), wire), policy=policy), key=lambda: "k"
    )
    async def never() -> None:
        pytest.fail("ran unprotected")

    with pytest.raises(StoreUnavailable):
        await never()


async def test_an_inbox_takes_it_too() -> None:
    store = MemoryInbox()

    @idempotent(Inbox("import_orders", store), key=lambda row: row["id"])
    async def load(row: dict[str, str]) -> str:
        current_unit().create("row", {"name": row["name"]})
        return row["name"]

    assert [await load({"id": "7", "name": "seven"}) for _ in range(2)] == ["seven"] * 2


def test_above_a_trigger_decorator_it_says_how_to_turn_them_round() -> None:
    app = func.FunctionApp()
    with pytest.raises(TypeError, match="directly above `def`, below every @app"):

        @idempotent(a_consumer(), key=lambda event: "k")
        @app.event_grid_trigger(arg_name="event")
        def process(event: func.EventGridEvent) -> None: ...


def test_a_result_that_cannot_be_kept_is_an_error_when_decorating() -> None:
    async def handler() -> list[int] | tuple[int, ...]:
        return []

    with pytest.raises(ConfigurationError, match=r"handler.*cannot be kept"):
        idempotent(a_consumer(), key=lambda: "k")(handler)


def test_an_annotation_that_names_nothing_is_an_error_when_decorating() -> None:
    async def handler() -> None: ...

    handler.__annotations__ = {"return": "OnlyForCheckers"}
    with pytest.raises(ConfigurationError, match=r"handler cannot be resolved.*OnlyForCheckers"):
        idempotent(a_consumer(), key=lambda: "k")(handler)


async def test_the_function_stays_what_it_is_to_the_worker() -> None:
    """Below a trigger without an adapter: indexed by its name, parameters and kind."""

    @idempotent(a_consumer(), key=lambda event: event.id)
    def process(event: func.EventGridEvent) -> None:
        """Counts."""

    assert (process.__name__, process.__doc__) == ("process", "Counts.")
    assert list(inspect.signature(process).parameters) == ["event"]
    assert inspect.iscoroutinefunction(process)
