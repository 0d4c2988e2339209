"""The two ways to settle a Service Bus message by hand from Python."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import azure.functions as func

from ..errors import TransientFailure

_log = logging.getLogger("idempotency.service_bus")
_MOST_DESCRIPTION = 1024
_THREADS = 4


class BindingSettlement:
    """Settles through the binding extension `azurefunctions-extensions-bindings-servicebus`.

    Its client blocks, so it is called in threads: its own, since handlers that hang in the shared
    ones must not keep finished messages from being settled. A settlement that fails (the lock is
    lost, the host is going away) is logged, not raised: the record is durable, and the message comes
    back as a duplicate.
    """

    auto_complete = False

    def __init__(self) -> None:
        from azurefunctions.extensions.bindings.servicebus import ServiceBusMessageActions

        self.actions_type: type[Any] = ServiceBusMessageActions
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="settlement")

    async def complete(self, message: func.ServiceBusMessage, actions: Any) -> None:
        await self._settled("complete", message, actions.complete)

    async def dead_letter(
        self, message: func.ServiceBusMessage, actions: Any, *, reason: str, description: str
    ) -> None:
        _log.error("message %r dead-lettered: %s: %s", message.message_id, reason, description)
        call = functools.partial(
            actions.deadletter,
            deadletter_reason=reason,
            deadletter_error_description=description[:_MOST_DESCRIPTION],
        )
        await self._settled("dead-letter", message, call)

    def give_back(self, why: str) -> None:
        """Nothing to do: an unsettled message comes back when its lock ends."""

    async def _settled(
        self, operation: str, message: func.ServiceBusMessage, call: Callable[..., None]
    ) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, call, message)
        except Exception as error:  # noqa: BLE001 - whatever failed, the message comes back
            _log.warning("could not %s message %r: %s", operation, message.message_id, error)


type Quarantine = Callable[[func.ServiceBusMessage, str, str], Awaitable[None]]
"""Sends a copy of a message to the quarantine queue, with the reason and its description."""


class QuarantineSettlement:
    """The fallback without the binding extension: a quarantine queue stands in for dead-lettering.

    The copy is sent first; then the invocation succeeds and the host completes the original. If the
    host dies in between, the message comes back and the copy is sent again: at least once.
    """

    auto_complete = True
    actions_type = None

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine

    async def complete(self, message: func.ServiceBusMessage, actions: Any) -> None:
        """The host completes when the invocation succeeds."""

    async def dead_letter(
        self, message: func.ServiceBusMessage, actions: Any, *, reason: str, description: str
    ) -> None:
        await self._quarantine(message, reason, description[:_MOST_DESCRIPTION])
        _log.error("message %r quarantined: %s: %s", message.message_id, reason, description)

    def give_back(self, why: str) -> None:
        """The host abandons on an exception."""
        raise TransientFailure(f"the message comes back: {why}")
