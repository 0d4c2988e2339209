"""The app in its host, over the local parts."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from local.host.process import HostProcess
from local.servicebus import Broker, Entities
from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RunningApp:
    """The app, what feeds it, and a client of its HTTP functions."""

    broker: Broker
    azurite: Azurite
    host: HostProcess
    http: httpx.Client
    storage_queue: str
    sender: ServiceBusSender
    environment: Mapping[str, str]

    def send(self, *messages: ServiceBusMessage) -> None:
        """Send to the orders queue with the SDK, over AMQP, one by one."""
        for message in messages:
            self.sender.send_messages(message)


@contextmanager
def running_app(
    azurite: Azurite,
    cosmos: CosmosServer | None = None,
    lock: timedelta = timedelta(seconds=3),
    /,
    **settings: str,
) -> Iterator[RunningApp]:
    """The app with a broker and names of its own, so that tests do not meet in one store.

    ``lock`` is short, so that what is paced comes back within a test's patience.
    """
    own = uuid.uuid4().hex[:8]
    entities = Entities.load(ROOT / "local" / "entities.json")
    subscribers = ("payments", "email", "loyalty", "audit")
    for name in ("orders", *(f"order-events/subscriptions/{each}" for each in subscribers)):
        entities = entities.with_queue(name, lock=lock)
    with Broker(entities, host="127.0.0.1", port=0) as broker:
        environment = {
            "AzureWebJobsStorage": azurite.connection_string,
            "ServiceBusConnection": broker.connection_string,
            "ORDERS_QUEUE": "orders",
            "ORDERS_STORAGE_QUEUE": f"orders-{own}",
            "ORDERS_CONTAINER": f"orders{own}",
            "RECORDS_CONTAINER": f"records{own}",
            "IMPORTS_STORAGE_QUEUE": f"imports-{own}",
            "IMPORTS_CONTAINER": f"imports-{own}",
            "QUARANTINE_QUEUE": "quarantine",
            "IDEMPOTENCY_STORE": "table",
            "PACING_FIRST_SECONDS": "0.1",
            "PACING_LONGEST_SECONDS": "0.5",
            "APPLICATIONINSIGHTS_CONNECTION_STRING": "",
            **settings,
        }
        if cosmos is not None:
            environment |= {
                "IDEMPOTENCY_STORE": "cosmos",
                "COSMOS_CONNECTION": cosmos.connection_string,
                "COSMOS_DATABASE": f"app{own}",
            }
        with (
            HostProcess(ROOT, environment=environment) as host,
            httpx.Client(base_url=f"{host.base_url}/api", timeout=30) as client,
            ServiceBusClient.from_connection_string(broker.connection_string) as bus,
            bus.get_queue_sender("orders") as sender,
        ):
            yield RunningApp(broker, azurite, host, client, f"orders-{own}", sender, environment)


@pytest.fixture(scope="module", params=["table", "cosmos"])
def app(request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    """The app on each store, one for the tests of a file: they use order ids of their own."""
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    with running_app(azurite, cosmos) as running:
        yield running
