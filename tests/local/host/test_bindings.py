import pytest

from local.host.bindings import BindingError, connection, resolve

QUEUE = {"type": "queueTrigger", "connection": "Storage"}
BUS = {"type": "serviceBusTrigger", "connection": "Bus"}


def test_a_name_in_percent_signs_is_replaced_by_its_setting() -> None:
    assert resolve("%PREFIX%-orders", {"PREFIX": "test"}) == "test-orders"


def test_given_a_missing_setting_the_message_names_it() -> None:
    with pytest.raises(BindingError, match="ORDERS_QUEUE"):
        resolve("%ORDERS_QUEUE%", {})


def test_a_connection_is_found_by_its_name_and_by_the_prefixed_name() -> None:
    assert connection(BUS, {"Bus": "Endpoint=..."}).connection_string == "Endpoint=..."
    assert connection(BUS, {"AzureWebJobsBus": "Endpoint=..."}).connection_string == "Endpoint=..."


def test_a_connection_may_be_an_address_for_use_with_an_identity() -> None:
    bus = connection(BUS, {"Bus__fullyQualifiedNamespace": "n.servicebus.windows.net"})
    by_account = connection(QUEUE, {"Storage__accountName": "shop"})
    by_uri = connection(QUEUE, {"Storage__queueServiceUri": "https://q.example"})

    assert bus.address == "n.servicebus.windows.net"
    assert by_account.address == "https://shop.queue.core.windows.net"
    assert by_uri.address == "https://q.example"


def test_without_a_named_connection_the_default_of_the_trigger_is_used() -> None:
    found = connection({"type": "queueTrigger"}, {"AzureWebJobsStorage": "x"})
    assert found.name == "AzureWebJobsStorage"


@pytest.mark.parametrize("environment", [{}, {"Bus": ""}])
def test_given_a_missing_or_empty_connection_the_message_names_it(
    environment: dict[str, str],
) -> None:
    with pytest.raises(BindingError, match="'Bus' is missing or empty"):
        connection(BUS, environment)
