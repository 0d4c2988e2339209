"""Settings that cannot work stop the app at start, by name, with what is right, and without any secret."""

import pytest

from bootstrap import build
from shared.idempotency import ConfigurationError
from shared.settings import Settings

STORAGE = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
COSMOS = {
    **STORAGE,
    "IDEMPOTENCY_STORE": "cosmos",
    "COSMOS_CONNECTION__accountEndpoint": "https://c.documents.azure.com/",
}


def refused(values: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as error:
        Settings.read(values)
    return str(error.value)


@pytest.mark.parametrize(
    "setting",
    ["ORDERS_CONTAINER", "RECORDS_CONTAINER", "INVENTORY_CONTAINER", "TIMELINES_CONTAINER"],
)
@pytest.mark.parametrize(
    "name", ["my-orders", "1orders", "ab", "a" * 64, "tables", "or ders", "caf\u00e9"]
)
def test_given_no_name_for_a_table_then_it_is_refused(setting: str, name: str) -> None:
    said = refused({**STORAGE, setting: name})
    assert setting in said
    assert repr(name) in said
    assert "letters and digits" in said


@pytest.mark.parametrize("name", ["abc", "Orders2", "a" * 63])
def test_given_a_name_for_a_table_then_it_is_taken(name: str) -> None:
    assert Settings.read({**STORAGE, "ORDERS_CONTAINER": name}).orders_name == name


@pytest.mark.parametrize("setting", ["COSMOS_DATABASE", "ORDERS_CONTAINER", "RECORDS_CONTAINER"])
@pytest.mark.parametrize("name", ["a/b", "a\\b", "a#b", "a?b", "a ", "a\n", "a" * 256])
def test_given_no_name_for_a_container_then_it_is_refused(setting: str, name: str) -> None:
    said = refused({**COSMOS, setting: name})
    assert setting in said
    assert "Cosmos DB" in said


def test_given_a_container_s_name_that_no_table_could_have_then_it_is_taken() -> None:
    assert Settings.read({**COSMOS, "ORDERS_CONTAINER": "my orders-2"}).orders_name == "my orders-2"


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("ORDERS_STORAGE_QUEUE", ["Orders", "ab", "-ab", "ab-", "a--b", "a_b", "a" * 57]),
        ("ORDERS_QUEUE", ["a b", "-a", "a/", "caf\u00e9", "a" * 261, "a?b"]),
        ("ORDER_EVENTS_TOPIC", ["a b", ".a"]),
        ("PAYMENTS_SUBSCRIPTION", ["a/b", "a" * 51, "a b"]),
        ("TIMELINE_SUBSCRIPTION", ["a/b"]),
    ],
)
def test_given_no_name_for_a_queue_topic_or_subscription_then_it_is_refused(
    setting: str, names: list[str]
) -> None:
    for name in names:
        assert f"app setting {setting} is {name!r}" in refused({**STORAGE, setting: name})


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("ORDERS_STORAGE_QUEUE", "a-1"),
        ("ORDERS_STORAGE_QUEUE", "a" * 56),
        ("ORDERS_QUEUE", "shop/Orders_1.new"),
        ("PAYMENTS_SUBSCRIPTION", "a" * 50),
    ],
)
def test_given_a_name_for_a_queue_or_subscription_then_it_is_taken(setting: str, name: str) -> None:
    Settings.read({**STORAGE, setting: name})


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"AzureWebJobsStorage": "secret"}, "AzureWebJobsStorage"),
        ({"AzureWebJobsStorage": "AccountName=;AccountKey=secret"}, "AzureWebJobsStorage"),
        ({"AzureWebJobsStorage": "AccountKey=secret"}, "AccountName or tableEndpoint"),
        ({"AzureWebJobsStorage__accountName": "https://st"}, "AzureWebJobsStorage__accountName"),
        ({"AzureWebJobsStorage__tableServiceUri": "st"}, "AzureWebJobsStorage__tableServiceUri"),
        ({"ServiceBusConnection": "secret"}, "ServiceBusConnection"),
        ({"ServiceBusConnection": "SharedAccessKey=secret"}, "among them Endpoint"),
        (
            {"ServiceBusConnection__fullyQualifiedNamespace": "sb://sb.servicebus.windows.net/"},
            "NAME.servicebus.windows.net",
        ),
        ({"ServiceBusConnection__fullyQualifiedNamespace": "sb"}, "NAME.servicebus.windows.net"),
        ({**COSMOS, "COSMOS_CONNECTION__accountEndpoint": "c"}, "begins with https://"),
        (
            {"IDEMPOTENCY_STORE": "cosmos", "COSMOS_CONNECTION": "AccountKey=secret"},
            "among them AccountEndpoint",
        ),
        ({"IDEMPOTENCY_STORE": "cosmos"}, "COSMOS_CONNECTION is missing"),
        ({"PURGE_SCHEDULE": "daily"}, "PURGE_SCHEDULE is 'daily', no NCRONTAB expression"),
        ({"OUTBOX_SWEEP_SCHEDULE": "0 0 0 30 2 *"}, "no such date"),
        ({"SETTLEMENT_SCHEDULE": "0 0 25 * * *"}, "no hour (0-23)"),
        ({"IDEMPOTENCY_STORE": "sql"}, "one of table, cosmos"),
        ({"IDEMPOTENCY_LEASE_SECONDS": "x"}, "must be a number"),
        ({"IDEMPOTENCY_LEASE_SECONDS": "50"}, r"lease (50 s) must not exceed wait (45 s)"),
    ],
)
def test_given_a_setting_that_cannot_work_then_it_is_named_and_no_secret_is_shown(
    values: dict[str, str], names: str
) -> None:
    said = refused({**STORAGE, **values})
    assert names in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "text",
    [
        "DefaultEndpointsProtocol=https;AccountName=st;AccountKey=a==;EndpointSuffix=core.windows.net",
        "TableEndpoint=https://st.table.core.windows.net;QueueEndpoint=https://st.queue.core.windows.net;"
        "BlobEndpoint=https://st.blob.core.windows.net;SharedAccessSignature=sv=1&sig=a%3D",
    ],
)
def test_given_a_connection_string_of_either_form_then_it_is_taken(text: str) -> None:
    assert Settings.read({"AzureWebJobsStorage": text}).tables.connection_string == text


def test_given_a_wrong_connection_string_for_telemetry_then_it_is_named() -> None:
    with pytest.raises(ConfigurationError, match="APPLICATIONINSIGHTS_CONNECTION_STRING"):
        build({**STORAGE, "APPLICATIONINSIGHTS_CONNECTION_STRING": "nothing"})


@pytest.mark.parametrize(
    ("lease", "deadline"), [("3", "20"), ("5", "60"), ("30", "300"), ("1", "5")]
)
def test_given_other_leases_and_deadlines_then_a_slice_of_an_import_keeps_to_them_by_itself(
    lease: str, deadline: str
) -> None:
    """A setting that nobody set must not keep the app from starting."""
    numbers = {
        "IDEMPOTENCY_LEASE_SECONDS": lease,
        "IDEMPOTENCY_HEARTBEAT_SECONDS": "0.5",
        "PAYMENT_TIMEOUT_SECONDS": "0.5",
        "PAYMENT_SETTLE_SECONDS": "1",
        "MAIL_TIMEOUT_SECONDS": "0.5",
        "IDEMPOTENCY_DEADLINE_SECONDS": deadline,
    }
    settings = Settings.read({**STORAGE, **numbers})
    longest = settings.imports.slice_seconds + settings.policy.lease * 2 / 3
    assert longest <= settings.policy.deadline
