"""The Cosmos server is an account as the app needs it: real conflicts and ETags."""

import uuid

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from local.services.cosmos import CLIENT_OPTIONS, CosmosServer
from local.services.processes import ServiceError

pytestmark = pytest.mark.integration


async def test_given_an_item_when_it_is_created_again_or_its_etag_is_old_then_it_is_refused(
    cosmos: CosmosServer,
) -> None:
    item = {"id": "1", "order_id": "1"}
    async with CosmosClient(cosmos.endpoint, cosmos.key, **CLIENT_OPTIONS) as client:
        database = await client.create_database(str(uuid.uuid4()))
        orders = await database.create_container("orders", PartitionKey("/order_id"))
        created = await orders.create_item(item)
        with pytest.raises(CosmosResourceExistsError):
            await orders.create_item(item)
        await orders.replace_item("1", item | {"paid": True})
        with pytest.raises(CosmosAccessConditionFailedError):
            await orders.replace_item(
                "1", item, etag=created["_etag"], match_condition=MatchConditions.IfNotModified
            )


@pytest.mark.parametrize("partition_path", ["/id", "/order_id"])
async def test_given_no_such_item_when_it_is_read_then_it_is_not_found(
    cosmos: CosmosServer, partition_path: str
) -> None:
    async with CosmosClient(cosmos.endpoint, cosmos.key, **CLIENT_OPTIONS) as client:
        database = await client.create_database(str(uuid.uuid4()))
        items = await database.create_container("items", PartitionKey(partition_path))
        with pytest.raises(CosmosResourceNotFoundError):
            await items.read_item("none", "none")


async def test_given_a_batch_whose_last_operation_is_refused_then_none_of_it_is_kept(
    cosmos: CosmosServer,
) -> None:
    async with CosmosClient(cosmos.endpoint, cosmos.key, **CLIENT_OPTIONS) as client:
        database = await client.create_database(str(uuid.uuid4()))
        items = await database.create_container("items", PartitionKey("/order_id"))
        await items.create_item({"id": "kept", "order_id": "1", "version": 1})
        await items.create_item({"id": "taken", "order_id": "1"})
        batch = [
            ("create", ({"id": "new", "order_id": "1"},)),
            ("replace", ("kept", {"id": "kept", "order_id": "1", "version": 2})),
            ("delete", ("taken",)),
            ("create", ({"id": "kept", "order_id": "1"},)),
        ]

        with pytest.raises(CosmosBatchOperationError) as refused:
            await items.execute_item_batch(batch, partition_key="1")

        assert refused.value.error_index == 3
        statuses = [answer["statusCode"] for answer in refused.value.operation_responses]
        assert statuses == [424, 424, 424, 409]
        left = {item["id"]: item.get("version") async for item in items.read_all_items()}
        assert left == {"kept": 1, "taken": None}


async def test_given_the_connection_string_then_the_client_takes_it(cosmos: CosmosServer) -> None:
    client = CosmosClient.from_connection_string(cosmos.connection_string, **CLIENT_OPTIONS)
    async with client:
        name = str(uuid.uuid4())
        assert (await client.create_database(name)).id == name


def test_given_a_port_that_is_taken_then_the_error_names_it(cosmos: CosmosServer) -> None:
    with pytest.raises(ServiceError, match=f"cosmos: port {cosmos.port} is in use"):
        CosmosServer(port=cosmos.port).start()


def test_given_it_was_stopped_when_it_starts_again_then_it_is_where_it_was() -> None:
    cosmos = CosmosServer()
    with cosmos:
        endpoint = cosmos.endpoint
    with cosmos:
        assert cosmos.endpoint == endpoint
        assert cosmos.process.running
    with pytest.raises(ServiceError, match="cosmos: not started"):
        _ = cosmos.process
