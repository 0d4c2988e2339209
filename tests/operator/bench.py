"""An operator at the command line, over the local parts."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.cosmos.aio import CosmosClient
from azure.data.tables.aio import TableClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from local.servicebus import Broker
from local.services.azurite import Azurite
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from shared.idempotency import Record, Store, Stored
from shared.idempotency.cli.commands import app
from shared.idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.table import TableStore


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """What it said in JSON."""
        return json.loads(self.out)


class Operator:
    """The command line in one folder, where a local app seems to run."""

    def __init__(
        self,
        folder: Path,
        azurite: Azurite,
        cosmos: CosmosServer | None = None,
        broker: Broker | None = None,
        catalogue: Path | None = None,
    ) -> None:
        self.own = uuid.uuid4().hex[:8]
        self._azurite = azurite
        self._cosmos = cosmos
        self.broker = broker
        self._run_file = folder / "local.json"
        running = {
            "storage": azurite.connection_string,
            "cosmos": cosmos.connection_string if cosmos else None,
            "service_bus": broker.connection_string if broker else None,
        }
        self._run_file.write_text(json.dumps(running))
        self._catalogue = catalogue or folder / "pyproject.toml"
        if catalogue is not None:
            return
        self._catalogue.write_text(
            f"""
[tool.idempotency]
records = ["records{self.own}"]
markers = {{ orders{self.own} = "order_id" }}
cosmos_database = "db{self.own}"
[tool.idempotency.sources]
charge_payment = "orders"
"""
        )

    def __call__(self, *arguments: str, answer: str = "", environment: Any = None) -> Ended:
        """Run one command; ``answer`` is what is typed."""
        where = ["--run-file", str(self._run_file), "--catalogue", str(self._catalogue)]
        result = CliRunner().invoke(app, [*where, *arguments], input=answer, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    def store[T](self, use: Callable[[Store], Awaitable[T]]) -> T:
        """What ``use`` makes of the store of records."""

        async def used() -> T:
            if self._cosmos is None:
                name = f"records{self.own}"
                async with TableClient.from_connection_string(
                    self._azurite.connection_string, name
                ) as table:
                    return await use(TableStore(table))
            async with CosmosClient(
                self._cosmos.endpoint, self._cosmos.key, **CLIENT_OPTIONS
            ) as client:
                container = Container(
                    client,
                    database=f"db{self.own}",
                    container=f"records{self.own}",
                    partition_path=PARTITION_PATH,
                )
                return await use(CosmosStore(container))

        return asyncio.run(used())

    def put(self, *records: Record) -> None:
        """Have records in the store."""

        async def insert(store: Store) -> None:
            for record in records:
                assert await store.insert(record)

        self.store(insert)

    def record(self, key: str, consumer: str = "charge_payment") -> Stored | None:
        """The record of a key, as the store has it."""
        return self.store(lambda store: store.read(consumer, key))

    def dead_letter(self, *messages: ServiceBusMessage, reason: str, queue: str = "orders") -> None:
        """Have messages among the dead letters of a queue, or of a subscription of a topic."""
        assert self.broker
        with ServiceBusClient.from_connection_string(self.broker.connection_string) as client:
            with client.get_queue_sender(queue.partition("/")[0]) as sender:
                for message in messages:
                    sender.send_messages(message)
            topic, _, subscription = queue.partition("/")
            receiver = (
                client.get_subscription_receiver(topic, subscription, max_wait_time=2)
                if subscription
                else client.get_queue_receiver(queue, max_wait_time=2)
            )
            with receiver:
                for _ in messages:
                    [received] = receiver.receive_messages(1)
                    receiver.dead_letter_message(
                        received, reason=reason, error_description=f"because {reason}"
                    )
