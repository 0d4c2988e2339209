"""The Storage queue trigger: poll, invoke, delete; failed messages come back or are poison."""

import asyncio
import base64
import binascii
import logging
from typing import Any

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from .bindings import Connection
from .hostjson import QueueSettings
from .inputs import queue_message
from .invocations import Invocations

log = logging.getLogger("local.host")

HIDDEN = 600.0  # seconds a message stays invisible while its function runs, renewed at half time
SHORTEST_POLL = 0.1  # seconds between two looks at a queue that has just had messages


class StorageQueueTrigger:
    """Feeds one function from one queue, with `QUEUE-poison` for messages that keep failing."""

    def __init__(
        self,
        function: str,
        queue: str,
        connection: Connection,
        settings: QueueSettings,
        invocations: Invocations,
        hide: float = HIDDEN,
    ) -> None:
        self._function = function
        self._name = queue
        self._connection = connection
        self._settings = settings
        self._invocations = invocations
        self._hidden = hide
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._credential: Any = None

    async def start(self) -> None:
        """Create the queue where it is missing and begin to poll."""
        self._queue = self._client(self._name)
        self._poison = self._client(f"{self._name}-poison")
        try:
            await _create(self._queue)
        except AzureError as error:
            log.warning("queue %s: no answer yet, still trying: %s", self._name, _first_line(error))
        self._poll = asyncio.create_task(self._poll_forever(), name=f"queue:{self._name}")

    async def stop(self, grace: float) -> None:
        """Stop polling, let running invocations finish within the grace, close the clients."""
        self._stopping.set()
        self._freed.set()
        tasks = {task for task in (self._poll, *self._running) if task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late | self._running:
                task.cancel()
            await asyncio.gather(*late, *self._running, return_exceptions=True)
        await self._queue.close()
        await self._poison.close()
        if self._credential is not None:
            await self._credential.close()

    def _client(self, queue: str) -> QueueClient:
        if self._connection.connection_string is not None:
            return QueueClient.from_connection_string(self._connection.connection_string, queue)
        if self._credential is None:
            from azure.identity.aio import DefaultAzureCredential

            self._credential = DefaultAzureCredential()
        return QueueClient(str(self._connection.address), queue, credential=self._credential)

    async def _poll_forever(self) -> None:
        pause = SHORTEST_POLL
        while not self._stopping.is_set():
            self._freed.clear()
            if len(self._running) > self._settings.new_batch_threshold:
                await self._freed.wait()
                continue
            if await self._fetch():
                pause = SHORTEST_POLL
                continue
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pause = min(pause * 2, self._settings.max_polling_interval)

    async def _fetch(self) -> bool:
        """Start an invocation for each message of one batch; false when there was none."""
        found = False
        pages = self._queue.receive_messages(
            messages_per_page=self._settings.batch_size, visibility_timeout=int(self._hidden)
        ).by_page()
        try:
            # One page is one request; all of its messages are ours from here on.
            async for message in await anext(pages):
                found = True
                self._begin(message)
        except StopAsyncIteration:
            return found
        except ResourceNotFoundError:
            await self._tolerantly(_create(self._queue), "not created")
        except AzureError as error:
            log.warning("queue %s: not read: %s", self._name, _first_line(error))
        return found

    def _begin(self, message: QueueMessage) -> None:
        task = asyncio.create_task(self._deliver(message))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._freed.set()

    async def _deliver(self, message: QueueMessage) -> None:
        """One invocation, and what becomes of its message."""
        count = message.dequeue_count or 1
        try:
            body = self._decoded(str(message.content))
        except ValueError as error:
            await self._give_up(message, str(error))
            return
        if count > self._settings.max_dequeue_count:
            await self._give_up(message, f"delivered {count} times")
            return
        data, metadata = queue_message(
            body,
            message_id=message.id,
            dequeue_count=count,
            insertion_time=message.inserted_on,
            expiration_time=message.expires_on,
            next_visible_time=message.next_visible_on,
            pop_receipt=message.pop_receipt or "",
        )
        hiding = asyncio.create_task(self._keep_hidden(message))
        try:
            result = await self._invocations.run(self._function, data, metadata)
        finally:
            hiding.cancel()
            await asyncio.gather(hiding, return_exceptions=True)
        if result.succeeded:
            await self._tolerantly(self._queue.delete_message(message), "not deleted")
        elif count >= self._settings.max_dequeue_count:
            await self._give_up(message, f"failed {count} times")
        else:
            await self._tolerantly(
                self._queue.update_message(
                    message, visibility_timeout=int(self._settings.visibility_timeout)
                ),
                "not made visible again",
            )

    def _decoded(self, content: str) -> bytes:
        if not self._settings.base64:
            return content.encode()
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error:
            raise ValueError("no base64, which messageEncoding of host.json wants") from None

    async def _keep_hidden(self, message: QueueMessage) -> None:
        while True:
            await asyncio.sleep(self._hidden / 2)
            await self._tolerantly(self._hide(message), "not kept invisible")

    async def _hide(self, message: QueueMessage) -> None:
        updated = await self._queue.update_message(message, visibility_timeout=int(self._hidden))
        message.pop_receipt = updated.pop_receipt

    async def _give_up(self, message: QueueMessage, why: str) -> None:
        log.warning(
            "queue %s: message %s goes to %s-poison: %s",
            self._name, message.id, self._name, why,
        )  # fmt: skip
        await self._tolerantly(self._to_poison(message), "not moved to the poison queue")

    async def _to_poison(self, message: QueueMessage) -> None:
        """Send first, then delete: rather twice in the poison queue than nowhere."""
        try:
            await self._poison.send_message(message.content)
        except ResourceNotFoundError:
            await _create(self._poison)
            await self._poison.send_message(message.content)
        await self._queue.delete_message(message)

    async def _tolerantly(self, action: Any, failure: str) -> None:
        """A service that is away must not end the trigger: the message becomes visible again."""
        try:
            await action
        except AzureError as error:
            log.warning("queue %s: %s: %s", self._name, failure, _first_line(error))


async def _create(queue: QueueClient) -> None:
    try:
        await queue.create_queue()
    except ResourceExistsError:
        return


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
