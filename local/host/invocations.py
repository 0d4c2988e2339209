"""The bridge from the host's loop to the worker's, and the log of what ran."""

import asyncio
import contextvars
import logging
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from .worker import InvocationResult, Worker

log = logging.getLogger("local.host")


class Invocations:
    """Runs functions on the worker's loop for triggers that live on the host's.

    The two loops are apart, as host and worker are in Azure: a function that blocks its loop
    must stop neither the renewal of its own lock nor the settlement call it is waiting for.
    """

    def __init__(self, worker: Worker, worker_loop: asyncio.AbstractEventLoop) -> None:
        self._worker = worker
        self._worker_loop = worker_loop
        self._unfinished: set[Future[InvocationResult]] = set()

    @property
    def running(self) -> int:
        """How many invocations have not ended, those nobody waits for any more included."""
        return len(self._unfinished)

    async def run(
        self,
        name: str,
        data: Any,
        metadata: Mapping[str, Any],
        trace_parent: str | None = None,
    ) -> InvocationResult:
        """Invoke the function and log how it went; what it raises is in the result."""
        invocation_id = str(uuid.uuid4())
        log.info("Executing 'Functions.%s' (id=%s)", name, invocation_id)
        invocation = self._worker.invoke(
            name, data, metadata, invocation_id=invocation_id, trace_parent=trace_parent
        )
        # An empty context: no context variable of the host's may reach the app.
        future = contextvars.Context().run(
            asyncio.run_coroutine_threadsafe, invocation, self._worker_loop
        )
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        try:
            # A host that gives up waiting does not stop the function, here as in Azure.
            result = await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if not future.cancelled():
                raise
            # The function let a CancelledError out: a failure like any other.
            result = InvocationResult(False, "CancelledError", None, None, 0.0)
        outcome = "Succeeded" if result.succeeded else "Failed"
        milliseconds = round(result.seconds * 1000)
        if result.succeeded:
            log.info(
                "Executed 'Functions.%s' (%s, id=%s, %dms)",
                name, outcome, invocation_id, milliseconds,
            )  # fmt: skip
        else:
            log.error(
                "Executed 'Functions.%s' (%s, id=%s, %dms)\n%s",
                name, outcome, invocation_id, milliseconds,
                (result.stack_trace or result.exception or "").rstrip(),
            )  # fmt: skip
        return result
