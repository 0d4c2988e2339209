"""The call of one step: in a context of its own, and under a deadline."""

import asyncio
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from .clock import Clock, finished_within
from .downstream import StepCall, enter_call
from .running import as_work, noted

type Call[R] = Callable[[], Awaitable[R]] | Callable[[], R]


def declared_result(call: Call[Any]) -> Any:
    """The type a call is annotated to return; Any where it says nothing."""
    while isinstance(call, functools.partial):
        call = call.func
    if not (inspect.isfunction(call) or inspect.ismethod(call)):
        return Any
    try:
        return typing.get_type_hints(call).get("return", Any)
    except (NameError, TypeError):
        return Any


def begun(step: StepCall, call: Call[Any]) -> "asyncio.Task[Any]":
    """The call under way, seen as ``step`` by whatever sends its requests."""
    calling = asyncio.create_task(_within(step, call))
    calling.add_done_callback(noted)
    return calling


async def _within(step: StepCall, call: Call[Any]) -> Any:
    enter_call(step)
    return await as_work(call)()


async def over(calling: "asyncio.Task[Any]", deadline: float | None, clock: Clock) -> Any:
    """What a call returns or raises; TimeoutError when it had to be cancelled at its deadline.

    ``deadline``: seconds from now, None for none of its own.
    """
    if deadline is None:
        await asyncio.wait({calling})
    elif not await finished_within(calling, deadline, clock):
        await ended(calling)
        if calling.cancelled():
            raise TimeoutError(f"no answer within {deadline:g} s")
    return calling.result()


async def ended(calling: "asyncio.Task[Any]") -> None:
    """Cancel a call and see it end, however long: while its thread runs, its effect is open."""
    interruption: asyncio.CancelledError | None = None
    while not calling.done():
        calling.cancel()
        try:
            await asyncio.wait({calling})
        except asyncio.CancelledError as cancelled:
            interruption = cancelled
    if interruption is not None:
        raise interruption
