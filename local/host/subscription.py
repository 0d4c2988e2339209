"""What a function listens to on Service Bus, and the client for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from .bindings import BindingError, Connection, Function, resolve
from .hostjson import ServiceBusSettings


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one function listens to, and how it wants its messages."""

    function: str
    entity: str
    subscription: str | None
    auto_complete: bool
    sessions: bool
    batch: bool
    data_type: str
    """As the binding has it; empty where it says nothing."""

    @property
    def binary(self) -> bool:
        return self.data_type == "binary"

    def __str__(self) -> str:
        return f"{self.entity}/{self.subscription}" if self.subscription else self.entity


def subscription(
    function: Function, settings: ServiceBusSettings, environment: Mapping[str, str]
) -> Subscription:
    """What the function's trigger binding asks for; the binding's own word wins over host.json.

    Raises BindingError when a `%SETTING%` of its names is missing.
    """
    trigger = function.trigger
    topic = trigger.get("topicName")
    auto_complete = trigger.get("autoCompleteMessages", trigger.get("autoComplete"))
    name = trigger.get("subscriptionName") if topic else None
    return Subscription(
        function=function.name,
        entity=resolve(str(topic or trigger["queueName"]), environment),
        subscription=resolve(str(name), environment) if name else None,
        auto_complete=settings.auto_complete if auto_complete is None else bool(auto_complete),
        sessions=bool(trigger.get("isSessionsEnabled", False)),
        batch=str(trigger.get("cardinality", "one")).lower() == "many",
        data_type=str(trigger.get("dataType") or "").lower(),
    )


def connect(connection: Connection, *, sessions: bool) -> tuple[ServiceBusClient, Any]:
    """A client, and the credential to close with it where it works with an identity.

    Raises BindingError for a connection string that is none.
    """
    retries: dict[str, Any] = {
        # To the SDK, no session with a message is a failure to be tried again.
        "retry_total": 0 if sessions else 3,
        "retry_backoff_factor": 0.2,
        "retry_backoff_max": 2,
    }
    if connection.connection_string is None:
        from azure.identity.aio import DefaultAzureCredential  # slow to import, rarely used

        credential = DefaultAzureCredential()
        return ServiceBusClient(str(connection.address), credential, **retries), credential
    try:
        client = ServiceBusClient.from_connection_string(connection.connection_string, **retries)
    except ValueError as error:
        raise BindingError(f"connection string '{connection.name}' is unusable: {error}") from None
    return client, None
