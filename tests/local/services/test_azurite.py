"""Azurite is storage as the app needs it: real conflicts, real queues, on ports of its own."""

import uuid
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError, ServiceRequestError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from local.services.azurite import STANDARD_PORTS, Azurite, AzuritePorts
from local.services.node import INSTALL, installed
from local.services.processes import ServiceError

pytestmark = pytest.mark.integration


def table_name() -> str:
    return f"t{uuid.uuid4().hex}"


def test_given_an_entity_when_it_is_inserted_again_then_it_conflicts(azurite: Azurite) -> None:
    entity = {"PartitionKey": "order", "RowKey": "1"}
    with TableServiceClient.from_connection_string(azurite.connection_string) as service:
        table = service.create_table(table_name())
        table.create_entity(entity)
        with pytest.raises(ResourceExistsError):
            table.create_entity(entity)


def test_given_a_queue_when_a_message_is_sent_then_it_is_received(azurite: Azurite) -> None:
    with QueueServiceClient.from_connection_string(azurite.connection_string) as service:
        queue = service.create_queue(f"q-{uuid.uuid4()}")
        queue.send_message('{"order_id": "1"}')
        received = queue.receive_message()
        assert received is not None
        assert received.content == '{"order_id": "1"}'


def test_given_one_running_when_another_starts_then_both_have_ports_of_their_own(
    azurite: Azurite,
) -> None:
    with Azurite() as other:
        ports = {*vars(azurite.ports).values(), *vars(other.ports).values()}
        assert len(ports) == 6
        assert 0 not in ports
        assert other.process.running


def test_given_ports_that_are_taken_then_the_error_names_the_first(azurite: Azurite) -> None:
    wanted = AzuritePorts(blob=0, queue=azurite.ports.queue, table=0)
    with pytest.raises(ServiceError, match=f"azurite: port {azurite.ports.queue} is in use"):
        Azurite(ports=wanted).start()


def test_given_a_location_when_the_store_was_down_then_it_is_back_with_its_data_where_it_was(
    tmp_path: Path,
) -> None:
    name = table_name()
    azurite = Azurite(location=tmp_path)
    with azurite:
        address = azurite.connection_string
        with TableServiceClient.from_connection_string(address) as service:
            service.create_table(name).create_entity({"PartitionKey": "order", "RowKey": "1"})
    with (
        TableServiceClient.from_connection_string(address, retry_total=0) as service,
        pytest.raises(ServiceRequestError),
    ):
        list(service.list_tables())
    with azurite, TableServiceClient.from_connection_string(address) as service:
        assert service.get_table_client(name).get_entity("order", "1")["RowKey"] == "1"


def test_the_standard_ports_are_those_of_development_storage() -> None:
    from azure.data.tables import TableServiceClient

    with TableServiceClient.from_connection_string("UseDevelopmentStorage=true") as service:
        assert service.url == f"http://127.0.0.1:{STANDARD_PORTS.table}/devstoreaccount1"


def test_given_a_package_that_is_not_installed_then_the_error_tells_the_command() -> None:
    with pytest.raises(ServiceError, match=f"no-such-package: not installed; run `{INSTALL}`"):
        installed("no-such-package", "index.js")
