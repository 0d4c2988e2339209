"""The Cosmos server is an account as the app needs it: real conflicts and ETags."""

import uuid

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosResourceExistsError

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
