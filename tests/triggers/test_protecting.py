"""The decorators: where they may stand, which handlers they take, and how those are called."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import azure.functions as func
import pytest

from shared.idempotency import ConfigurationError, current_attempt
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import (
    cloud_events,
    event_grid,
    http,
    service_bus,
    storage_queue,
    timer,
    webhooks,
)
from shared.idempotency.triggers.protecting import Decorator
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement
from shared.idempotency.triggers.standard_webhooks import StandardWebhooks
from tests.triggers.doubles import (
    RecordedActions,
    consumer_over,
    queue_message,
    service_bus_message,
)
from tests.triggers.webhook_sender import a_secret


async def set_aside(message: Any, reason: str, description: str) -> None:
    pytest.fail(f"set aside: {reason}: {description}")


def over_service_bus() -> Decorator:
    settlement = QuarantineSettlement(set_aside)
    return service_bus.idempotent(consumer_over(MemoryStore()), settlement=settlement)


def over_binding() -> Decorator:
    return service_bus.idempotent(consumer_over(MemoryStore()), settlement=BindingSettlement())


def over_storage_queue() -> Decorator:
    key = storage_queue.json_key("order_id")
    return storage_queue.idempotent(consumer_over(MemoryStore()), key=key, poison_queue=set_aside)


def over_http() -> Any:
    return http.idempotent(consumer_over(MemoryStore()))


def over_webhooks() -> Any:
    verifier = StandardWebhooks([a_secret()])
    return webhooks.idempotent(consumer_over(MemoryStore()), verifier)


def over_cloud_events() -> Any:
    return cloud_events.idempotent(consumer_over(MemoryStore()))


def over_event_grid() -> Any:
    return event_grid.idempotent(consumer_over(MemoryStore()), set_aside=set_aside)


def over_timer() -> Any:
    return timer.idempotent(consumer_over(MemoryStore()), schedule="0 0 * * * *", catch_up=0)


ADAPTERS = [over_service_bus, over_binding, over_storage_queue, over_http]
OF_ONE_PARAMETER = [over_webhooks, over_cloud_events, over_event_grid, over_timer]


@pytest.mark.parametrize("adapter", [*ADAPTERS, *OF_ONE_PARAMETER])
def test_above_the_trigger_decorator_it_says_how_to_turn_them_round(
    adapter: Callable[[], Any],
) -> None:
    app = func.FunctionApp()
    with pytest.raises(TypeError, match="directly above `def`, below every @app"):

        @adapter()  # type: ignore[untyped-decorator]
        @app.queue_trigger(arg_name="message", queue_name="q", connection="C")
        def process(message: func.QueueMessage) -> None: ...


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("out", [func.Out, func.Out[str]])
def test_a_handler_with_an_output_binding_is_refused(adapter: Callable[[], Any], out: Any) -> None:
    def process(message: Any, placed: Any) -> None: ...

    process.__annotations__ = {"placed": out}
    with pytest.raises(ConfigurationError, match=r"output binding 'placed'.*outbox"):
        adapter()(process)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_parameter_that_could_be_an_output_binding_is_refused(adapter: Callable[[], Any]) -> None:
    def process(message, placed): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigurationError, match="'placed' needs an annotation"):
        adapter()(process)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_handler_of_batches_or_of_plain_text_is_refused(adapter: Callable[[], Any]) -> None:
    def batch(messages: list[func.ServiceBusMessage]) -> None: ...
    def text(message: str) -> None: ...
    def nothing() -> None: ...

    for handler in (batch, text, nothing):
        with pytest.raises(ConfigurationError, match="one message per call"):
            adapter()(handler)


def test_a_handler_that_wants_to_settle_itself_is_refused() -> None:
    def process(message: func.ServiceBusMessage, actions: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="leave out the parameter 'actions'"):
        over_binding()(process)


def test_an_http_handler_that_answers_with_something_else_is_refused() -> None:
    def optional(request: func.HttpRequest) -> func.HttpResponse | None: ...
    def text(request: func.HttpRequest) -> str:
        return ""

    for handler in (optional, text):
        with pytest.raises(ConfigurationError, match=r"must return a func\.HttpResponse"):
            over_http()(handler)


async def test_a_synchronous_handler_runs_off_the_loop_inside_its_attempt() -> None:
    seen: list[Any] = []

    @over_service_bus()
    def process(message: func.ServiceBusMessage) -> None:
        seen.append((threading.current_thread(), current_attempt().key))

    await process(service_bus_message())
    [(thread, key)] = seen
    assert thread is not threading.main_thread()
    assert key == "o-1"


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    effects: list[str] = []

    async def really(message: func.QueueMessage) -> None:
        await asyncio.sleep(0)
        effects.append("ran")

    @over_storage_queue()
    def process(message: func.QueueMessage) -> Any:
        return really(message)

    await process(queue_message())
    assert effects == ["ran"]


async def test_further_parameters_pass_through_whatever_their_order() -> None:
    seen: list[Any] = []

    @over_service_bus()
    async def process(
        context: func.Context, message: func.ServiceBusMessage, *, tag: str = "none", **rest: int
    ) -> None:
        seen.append((context, message.message_id, tag, rest))

    context: Any = object()
    await process(context, service_bus_message(message_id="o-1"))
    await process(message=service_bus_message(message_id="o-2"), context=context, tag="t", more=1)
    assert seen == [(context, "o-1", "none", {}), (context, "o-2", "t", {"more": 1})]


async def test_a_call_that_does_not_fit_the_handler_is_a_type_error() -> None:
    @over_storage_queue()
    async def process(message: func.QueueMessage) -> None: ...

    with pytest.raises(TypeError, match="message"):
        await process()  # type: ignore[call-arg]


async def test_the_handler_itself_stays_within_reach_of_tests() -> None:
    @over_binding()
    async def process(message: func.ServiceBusMessage) -> str:
        """Makes an order."""
        return message.message_id

    assert (process.__name__, process.__doc__) == ("process", "Makes an order.")
    assert await inspect.unwrap(process)(service_bus_message()) == "o-1"

    app = func.FunctionApp()
    trigger = app.service_bus_queue_trigger(
        arg_name="message", queue_name="q", connection="C", auto_complete_messages=False
    )
    registered: Any = trigger(process)
    actions = RecordedActions()
    await registered(service_bus_message(), actions=actions)
    assert actions.done == [("complete",)]


async def test_a_result_never_reaches_the_host_which_has_no_place_for_it() -> None:
    @over_service_bus()
    async def process(message: func.ServiceBusMessage) -> dict[str, int]:
        return {"made": 1}

    returned: list[object] = [await process(service_bus_message())]  # type: ignore[func-returns-value]
    assert returned == [None]
    assert inspect.signature(process).return_annotation is None


def test_the_worker_is_shown_the_handler_s_parameters_and_its_own() -> None:
    @over_binding()
    async def process(
        message: func.ServiceBusMessage, context: func.Context, retries: int = 3, **rest: int
    ) -> None: ...

    signature = inspect.signature(process)
    assert list(signature.parameters) == ["message", "context", "retries", "actions", "rest"]
    assert process.__annotations__["actions"] is BindingSettlement().actions_type


def test_the_handler_s_own_annotations_are_left_alone() -> None:
    async def process(message: func.ServiceBusMessage) -> dict[str, int]:
        return {}

    over_binding()(process)
    assert process.__annotations__ == {
        "message": func.ServiceBusMessage,
        "return": dict[str, int],
    }
