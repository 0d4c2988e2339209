"""Microsoft's Python worker in this process: index the app, invoke its functions.

The library keeps its state in modules: one worker per process, one app per worker. Tests that
need another app, or a clean one, use `local.host.invoke` in a process of its own.
"""

import asyncio
import importlib
import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from .bindings import Function, function_from_metadata
from .protos import Message, ParameterBinding, StatusResult, TypedData, request, typed


class IndexingError(Exception):
    """The app could not be loaded; the message is the worker's, the trace is in `stack_trace`."""

    def __init__(self, message: str, stack_trace: str) -> None:
        super().__init__(message)
        self.stack_trace = stack_trace


@dataclass(frozen=True, slots=True)
class InvocationResult:
    """How one invocation ended.

    `exception` is the worker's one-line text of what the function raised, None on success;
    `return_value` is the data of the function's output, where it has one.
    """

    succeeded: bool
    exception: str | None
    stack_trace: str | None
    return_value: TypedData | None
    seconds: float


def settlement_address(port: int) -> None:
    """Tell the app's ServiceBusMessageActions where the host's settlement service listens.

    Its client reads the worker's command line, the first time it is asked for.
    """
    sys.argv = [
        sys.argv[0],
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--functions-grpc-max-message-length", str(128 * 1024 * 1024)),
    ]


class Worker:
    """The loaded app. Async functions run on the loop that `start` and `invoke` are awaited on."""

    _started: ClassVar[bool] = False

    def __init__(self, runtime: Any, functions: Mapping[str, Function]) -> None:
        self._runtime = runtime
        self.functions = functions

    @classmethod
    async def start(cls, app: Path) -> Self:
        """Load the app in that directory, as func does: with it as the working directory.

        Raises IndexingError with the worker's own words when the app does not load, and
        RuntimeError when a worker was started in this process before.
        """
        if cls._started:
            raise RuntimeError("one worker per process: the worker library keeps state in modules")
        cls._started = True
        os.chdir(app)
        directory = os.getcwd()
        sys.path.insert(0, directory)
        os.environ.setdefault("FUNCTIONS_WORKER_RUNTIME", "python")
        os.environ.setdefault("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
        os.environ.setdefault("AzureWebJobsScriptRoot", directory)
        settlement_address(0)
        runtime = importlib.import_module("azure_functions_runtime")
        runtime.start_threadpool_executor()
        started = await runtime.worker_init_request(
            request(worker_init_request=Message(capabilities={}, function_app_directory=directory))
        )
        if started.result.status != StatusResult.Success:
            error = started.result.exception
            raise IndexingError(error.message, error.stack_trace)
        if "HttpUri" in started.capabilities:
            raise IndexingError("HTTP streaming is not served by this host", "")
        answer = await runtime.functions_metadata_request(
            request(functions_metadata_request=Message())
        )
        if answer.function_metadata_results is None:
            raise IndexingError(f"no function_app.py in {directory}", "")
        functions = map(function_from_metadata, answer.function_metadata_results)
        return cls(runtime, {function.name: function for function in functions})

    async def invoke(
        self,
        name: str,
        data: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        invocation_id: str | None = None,
        trace_parent: str | None = None,
        retry_count: int = 0,
    ) -> InvocationResult:
        """Run a function once with this trigger data and metadata.

        `trace_parent` is the W3C trace context to run under; without one a new trace begins.
        `retry_count`: how often the function's retry policy has run this before.
        What the function raises is in the result. Raises KeyError for an unknown function.
        """
        function = self.functions[name]
        began = time.perf_counter()
        answer = await self._runtime.invocation_request(
            request(
                invocation_request=Message(
                    invocation_id=invocation_id or str(uuid.uuid4()),
                    function_id=function.function_id,
                    input_data=[
                        ParameterBinding(name=function.trigger["name"], data=typed(data)),
                    ],
                    trigger_metadata={key: typed(value) for key, value in (metadata or {}).items()},
                    trace_context=Message(
                        trace_parent=trace_parent or new_trace_parent(),
                        trace_state="",
                        attributes={},
                    ),
                    retry_context=Message(
                        retry_count=retry_count, max_retry_count=-1, exception=None
                    ),
                )
            )
        )
        seconds = time.perf_counter() - began
        if answer.result.status == StatusResult.Success:
            return InvocationResult(True, None, None, answer.return_value, seconds)
        error = answer.result.exception
        return InvocationResult(False, error.message, error.stack_trace, None, seconds)

    async def stop(self) -> None:
        """End the worker's threads; waits for synchronous functions that still run."""
        await asyncio.to_thread(self._runtime.stop_threadpool_executor)


def new_trace_parent() -> str:
    """A W3C trace context that starts a new, sampled trace."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"
