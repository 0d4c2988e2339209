"""The Service Bus trigger: receive under lock, invoke, settle; on queues and subscriptions."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from .bindings import Connection
from .hostjson import ServiceBusSettings
from .inputs import service_bus_batch
from .invocations import Invocations
from .received import LOST, ReceivedMessage, message_input, message_trace_parent
from .settlement import Settlement
from .subscription import Subscription, connect

log = logging.getLogger("local.host")

POLL = 0.5  # seconds one receive waits: how soon a stop is noticed
SESSION_WAIT = 2.0  # seconds one try for the next session waits
SPARE = 20.0  # seconds without a message after which a spare receiver is closed
OPENING = 10.0  # seconds the start of the host waits for the broker
LONGEST_PAUSE = 5.0  # seconds between two tries to reach the broker


class ServiceBusTrigger:
    """Feeds one function from one queue or subscription.

    Each call that may run at the same time has a receiver of its own, opened when all others are
    busy and closed again when it is spare: receivers of the SDK are for one task at a time.
    A receiver that fails is opened again, with a growing pause, until the host stops.
    """

    def __init__(
        self,
        source: Subscription,
        connection: Connection,
        settings: ServiceBusSettings,
        invocations: Invocations,
        settlement: Settlement,
    ) -> None:
        self._source = source
        self._settings = settings
        self._invocations = invocations
        self._settlement = settlement
        self._most = _most_receivers(source, settings)
        self._lanes: set[asyncio.Task[None]] = set()
        self._opening: set[asyncio.Task[None] | None] = set()
        self._waiting = 0
        self._open = asyncio.Event()
        self._stopping = asyncio.Event()
        self._client, self._credential = connect(connection, sessions=source.sessions)

    async def start(self) -> None:
        """Begin to receive; waits a little for the broker, then goes on trying by itself."""
        self._add_lane()
        if self._source.sessions:
            return  # its link opens when a session has a message
        try:
            await asyncio.wait_for(self._open.wait(), OPENING)
        except TimeoutError:
            log.warning("%s: no answer from the broker yet, still trying", self._source)

    async def stop(self, grace: float) -> None:
        """Stop receiving, let running invocations finish within the grace, close the client."""
        self._stopping.set()
        for lane in self._opening:
            if lane is not None:
                lane.cancel()
        if self._lanes:
            _, late = await asyncio.wait(self._lanes, timeout=grace)
            for lane in late:
                lane.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.close()
        if self._credential is not None:
            await self._credential.close()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ServiceBusReceiver]:
        """A receiver with its link; waiting for one may be cut short by a stop."""
        lane = asyncio.current_task()
        self._opening.add(lane)
        try:
            receiver = await self._receiver().__aenter__()
        finally:
            self._opening.discard(lane)
        self._open.set()
        try:
            yield receiver
        finally:
            await receiver.close()

    def _receiver(self) -> ServiceBusReceiver:
        options: dict[str, Any] = {
            "prefetch_count": math.ceil(self._settings.prefetch_count / self._most)
        }
        if self._source.sessions:
            options |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": SESSION_WAIT}
        if self._source.subscription is None:
            return self._client.get_queue_receiver(self._source.entity, **options)
        return self._client.get_subscription_receiver(
            self._source.entity, self._source.subscription, **options
        )

    def _add_lane(self) -> None:
        lane = asyncio.create_task(self._lane(), name=f"service-bus:{self._source}")
        self._lanes.add(lane)
        lane.add_done_callback(self._lanes.discard)

    async def _lane(self) -> None:
        """Receive and serve, over as many receivers as it takes."""
        failures = 0
        while not self._stopping.is_set():
            try:
                async with self._opened() as receiver:
                    failures = 0
                    if await self._serve(receiver):
                        return
            except OperationTimeoutError:
                continue  # no session has a message; the next try follows at once
            except Exception as error:  # noqa: BLE001 - whatever it is, the trigger must go on
                if self._stopping.is_set():
                    return
                failures += 1
                pause = min(0.1 * 2**failures, LONGEST_PAUSE)
                log.warning(
                    "%s: receiver lost, next try in %.1f s: %s: %s",
                    self._source, pause, type(error).__name__, error,
                )  # fmt: skip
                await self._pause(pause)

    async def _serve(self, receiver: ServiceBusReceiver) -> bool:
        """Serve messages until the host stops or the session is idle; true to close the lane."""
        quiet_since = time.monotonic()
        most = self._settings.max_message_batch_size if self._source.batch else 1
        while not self._stopping.is_set():
            async with self._counted_as_waiting():
                messages = await receiver.receive_messages(most, max_wait_time=POLL)
            if messages:
                self._widen()
                await self._deliver(receiver, messages)
                quiet_since = time.monotonic()
                continue
            quiet = time.monotonic() - quiet_since
            if self._source.sessions:
                if quiet > self._settings.session_idle_timeout:
                    return False
            elif quiet > SPARE and self._waiting > 0:
                return True
        return True

    @asynccontextmanager
    async def _counted_as_waiting(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _widen(self) -> None:
        """One more receiver when nobody waits for the next message."""
        if self._waiting == 0 and len(self._lanes) < self._most and not self._stopping.is_set():
            self._add_lane()

    async def _deliver(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        """One invocation with these messages, and their settlement afterwards."""
        received = [ReceivedMessage(message, receiver) for message in messages]
        inputs = [message_input(message, binary=self._source.binary) for message in messages]
        try:
            data, metadata = (
                service_bus_batch(inputs, data_type=self._source.data_type)
                if self._source.batch
                else inputs[0]
            )
        except ValueError as error:
            log.error(
                "Executed 'Functions.%s' (Failed): a body of the batch is no JSON (%s), and all of it is "
                "given back; state data_type=func.DataType.BINARY in the trigger",
                self._source.function, error,
            )  # fmt: skip
            for one in received:
                await self._settle(one, succeeded=False)
            return
        tokens = {one.token: one for one in received}
        self._settlement.locked.update(tokens)
        # Azure's host renews locks for single messages and sessions, not for batches.
        renewal = asyncio.gather(
            *(
                one.keep_locked(self._settings.max_auto_lock_renewal)
                for one in received[:1]
                if one.session_id is not None or not self._source.batch
            )
        )
        try:
            result = await self._invocations.run(
                self._source.function, data, metadata, message_trace_parent(messages[0])
            )
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            for token in tokens:
                self._settlement.locked.pop(token, None)
        for one in received:
            await self._settle(one, succeeded=result.succeeded)

    async def _settle(self, one: ReceivedMessage, *, succeeded: bool) -> None:
        """What the host does after the invocation with a message the app did not settle.

        Success without auto-completion leaves it locked: its lock ends by itself.
        """
        if one.settled or (succeeded and not self._source.auto_complete):
            return
        try:
            await (one.complete() if succeeded else one.abandon())
        except LOST as error:
            log.warning("message %s: not settled: %s", one.message.message_id, error)
        except Exception as error:  # noqa: BLE001 - the lock ends and the message comes back
            log.error(
                "message %s: not settled: %s: %s",
                one.message.message_id, type(error).__name__, error,
            )  # fmt: skip

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


def _most_receivers(source: Subscription, settings: ServiceBusSettings) -> int:
    if source.sessions:
        return settings.max_concurrent_sessions
    return 1 if source.batch else settings.max_concurrent_calls
