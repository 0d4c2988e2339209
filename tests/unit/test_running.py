"""How a handler is called: asynchronous ones on the loop, synchronous ones in a thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from shared.idempotency.running import as_work


class _Callable:
    async def __call__(self) -> int:
        return threading.get_ident()


async def _function() -> int:
    return threading.get_ident()


@pytest.mark.parametrize(
    "handler",
    [_function, _Callable(), as_work(_function), as_work(_Callable())],
    ids=["function", "object", "work of a function", "work of an object"],
)
async def test_given_an_asynchronous_handler_of_any_form_then_no_thread_is_used(
    handler: Callable[[], Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hop would cost, and a coroutine made in a thread may be left unawaited."""

    def never(*_: object) -> None:
        raise AssertionError("a thread")

    monkeypatch.setattr(asyncio, "to_thread", never)
    assert await as_work(handler)() == threading.get_ident()


async def test_given_a_synchronous_handler_then_it_runs_in_a_thread() -> None:
    assert await as_work(threading.get_ident)() != threading.get_ident()
