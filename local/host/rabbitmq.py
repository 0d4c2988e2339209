"""The RabbitMQ trigger: consume, invoke, acknowledge; what fails is put back a few times, then rejected."""

import asyncio
import logging
from typing import TYPE_CHECKING

from .invocations import Invocations
from .streams import rabbitmq_message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection

log = logging.getLogger("local.host")

PREFETCH = 30
MOST_REQUEUES = 5
REQUEUES = "requeueCount"
"""The header in which Azure's extension counts: it publishes what failed again, behind all others."""


class RabbitMQTrigger:
    """Feeds one function from one queue, which has to be there."""

    def __init__(
        self,
        function: str,
        queue: str,
        connection_string: str,
        invocations: Invocations,
        *,
        binary: bool = False,
    ) -> None:
        self._function = function
        self._queue = queue
        self._connection_string = connection_string
        self._invocations = invocations
        self._binary = binary
        self._connection: AbstractRobustConnection | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to consume; a broker that goes away is connected to again."""
        import aio_pika

        self._connection = await aio_pika.connect_robust(self._connection_string)
        self._channel = await self._connection.channel()
        await self._channel.set_qos(prefetch_count=PREFETCH)
        self._source = await self._channel.get_queue(self._queue)
        self._tag = await self._source.consume(self._begin)

    async def stop(self, grace: float) -> None:
        """Stop consuming, let running invocations finish within the grace, close the connection."""
        if self._connection is None:
            return
        await self._source.cancel(self._tag)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._connection.close()

    async def _begin(self, message: "AbstractIncomingMessage") -> None:
        task = asyncio.create_task(self._deliver(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _deliver(self, message: "AbstractIncomingMessage") -> None:
        data, metadata = rabbitmq_message(message.body, binary=self._binary)
        result = await self._invocations.run(self._function, data, metadata)
        try:
            if result.succeeded:
                await message.ack()
            else:
                await self._put_back(message)
        except Exception as error:  # noqa: BLE001 - unacknowledged, it comes back with the connection
            log.warning("%s: not settled: %s: %s", self._queue, type(error).__name__, error)

    async def _put_back(self, message: "AbstractIncomingMessage") -> None:
        import aio_pika

        requeues = message.headers.get(REQUEUES, 0)
        tries = requeues if isinstance(requeues, int) else 0
        if tries >= MOST_REQUEUES:
            await message.reject(requeue=False)
            return
        again = aio_pika.Message(message.body, headers={**message.headers, REQUEUES: tries + 1})
        await self._channel.default_exchange.publish(again, routing_key=self._queue)
        await message.ack()
