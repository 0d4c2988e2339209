"""Clients of the SDKs, by connection string (local) or identity (deployed); each is imported when used."""

import functools
from typing import TYPE_CHECKING, Any

from .connections import Connection

if TYPE_CHECKING:
    from azure.cosmos.aio import CosmosClient
    from azure.data.tables.aio import TableClient
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient
    from azure.storage.blob.aio import ContainerClient
    from azure.storage.queue.aio import QueueServiceClient

_ANSWER_WITHIN = 10
"""Seconds for a connection and for an answer of a store; far below a lease."""


def table(connection: Connection, table: str) -> "TableClient":
    """One table; nothing is sent before its first call."""
    from azure.data.tables.aio import TableClient

    options: dict[str, Any] = {
        "retry_total": 2,
        "connection_timeout": _ANSWER_WITHIN,
        "read_timeout": _ANSWER_WITHIN,
    }
    if connection.connection_string:
        return TableClient.from_connection_string(connection.connection_string, table, **options)
    return TableClient(connection.address or "", table, credential=identity(), **options)


def queues(connection: Connection) -> "QueueServiceClient":
    """The Storage queues of an account."""
    from azure.storage.queue.aio import QueueServiceClient

    if connection.connection_string:
        return QueueServiceClient.from_connection_string(connection.connection_string)
    return QueueServiceClient(connection.address or "", credential=identity())


def blobs(connection: Connection, container: str) -> "ContainerClient":
    """One container of an account; nothing is sent before its first call."""
    from azure.storage.blob.aio import ContainerClient

    options: dict[str, Any] = {
        "retry_total": 2,
        "connection_timeout": _ANSWER_WITHIN,
        "read_timeout": _ANSWER_WITHIN,
    }
    if connection.connection_string:
        return ContainerClient.from_connection_string(
            connection.connection_string, container, **options
        )
    return ContainerClient(connection.address or "", container, credential=identity(), **options)


@functools.cache
def cosmos(connection: Connection, *, verify_tls: bool) -> "CosmosClient":
    """An account's client, one for all its containers: it holds the connections."""
    from azure.cosmos.aio import CosmosClient

    options: dict[str, Any] = {
        "retry_total": 2,  # the consumer issues a call again itself, within its lease
        "connection_timeout": _ANSWER_WITHIN,
        "connection_verify": verify_tls,
        "enable_endpoint_discovery": verify_tls,  # a local server names no regions
    }
    if connection.connection_string:
        return CosmosClient.from_connection_string(connection.connection_string, **options)
    return CosmosClient(connection.address or "", credential=identity(), **options)


def service_bus(connection: Connection | None) -> "ServiceBusClient":
    """A namespace's client; RuntimeError when Service Bus is not configured."""
    from azure.servicebus.aio import ServiceBusClient

    if connection is None:
        raise RuntimeError("no function that sends to Service Bus is registered without it")
    if connection.connection_string:
        return ServiceBusClient.from_connection_string(connection.connection_string)
    return ServiceBusClient(connection.address or "", credential=identity())


def administration(namespace: str) -> "ServiceBusAdministrationClient":
    """Reads a namespace's entities; needs more rights than sending and receiving."""
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    return ServiceBusAdministrationClient(namespace, identity())


@functools.cache
def identity() -> Any:
    """The app's managed identity in Azure, the developer's login elsewhere."""
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()
