"""The app and its deployment agree on every app setting, and on every name a setting holds."""

import ast
import re
import runpy
from collections.abc import Iterator, Mapping
from typing import Any

import azure.functions as func
import pytest

from bootstrap import build
from local.deployment import infra
from local.deployment.bicep import BicepFile
from local.deployment.infra import CLIENT_ID, ROOT
from local.deployment.upload import uploaded_files
from shared.idempotency.stores.cosmos_access import Container
from shared.settings import Settings

QUEUES = "Microsoft.ServiceBus/namespaces/queues"
TOPICS = "Microsoft.ServiceBus/namespaces/topics"
SUBSCRIPTIONS = "Microsoft.ServiceBus/namespaces/topics/subscriptions"
BLOB_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
STORAGE_QUEUES = "Microsoft.Storage/storageAccounts/queueServices/queues"
TABLES = "Microsoft.Storage/storageAccounts/tableServices/tables"
CONTAINERS = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"

OTHER_FORMS = {
    f"AzureWebJobsStorage__{service}ServiceUri" for service in ("blob", "queue", "table")
}
"""Read, but not set: the long forms of AzureWebJobsStorage__accountName, for other clouds."""

LOCAL_ONLY = {"SERVICEBUS_ENTITY_FILE"}
"""Read, but not set: a deployed broker tells its numbers itself."""

ELSEWHERE = {
    "EventHubConnection",
    "EventHubConnection__fullyQualifiedNamespace",
    "EVENT_HUB",
    "KAFKA_BROKERS",
    "KAFKA_TOPIC",
    "RabbitMQConnection",
    "RABBITMQ_HOLD_SECONDS",
    "RABBITMQ_QUEUE",
    "EVENTS_ASIDE_QUEUE",
}
"""Read, but not set: services that whoever has them adds; this deployment brings none."""

READ_BY_HOST_AND_SDK = {
    "AZURE_CLIENT_ID",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "AzureWebJobsStorage__clientId",
    "AzureWebJobsStorage__credential",
    "ServiceBusConnection__clientId",
    "ServiceBusConnection__credential",
}

REFUSED_BY_FLEX_CONSUMPTION = {
    "ENABLE_ORYX_BUILD",
    "FUNCTIONS_EXTENSION_VERSION",
    "FUNCTIONS_WORKER_RUNTIME",
    "FUNCTIONS_WORKER_RUNTIME_VERSION",
    "SCM_DO_BUILD_DURING_DEPLOYMENT",
    "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING",
    "WEBSITE_CONTENTSHARE",
    "WEBSITE_RUN_FROM_PACKAGE",
    "WEBSITE_TIME_ZONE",
}


@pytest.fixture(params=["table", "cosmos"])
def app_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """The app settings that a deployment sets, with either store."""
    return infra.app_settings(request.param)


@pytest.fixture
def bindings(app_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The triggers and bindings that function_app.py registers with these settings."""
    for name, value in app_settings.items():
        monkeypatch.setenv(name, value)
    for name in ("AzureWebJobsStorage", "ServiceBusConnection", "COSMOS_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    app: func.FunctionApp = runpy.run_path(str(ROOT / "function_app.py"))["app"]
    return [
        binding.get_dict_repr() for each in app.get_functions() for binding in each.get_bindings()
    ]


class Recording(Mapping[str, str]):
    """Settings that remember which names were asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def test_every_setting_the_app_reads_is_set(app_settings: dict[str, str]) -> None:
    recording = Recording(app_settings)

    Settings.read(recording)

    assert recording.asked - app_settings.keys() - OTHER_FORMS - LOCAL_ONLY - ELSEWHERE == set()


def test_every_setting_that_is_set_is_read(app_settings: dict[str, str]) -> None:
    recording = Recording(app_settings)

    Settings.read(recording)

    assert app_settings.keys() - recording.asked - READ_BY_HOST_AND_SDK == set()


def test_nothing_but_the_composition_root_reads_the_environment() -> None:
    readers = set()
    for path in uploaded_files(ROOT):
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            name = getattr(node, "attr", getattr(node, "id", None))
            if name in ("environ", "environb", "getenv", "get_app_setting"):
                readers.add(path)

    assert readers == {"bootstrap.py"}


def test_no_setting_is_one_that_flex_consumption_refuses(app_settings: dict[str, str]) -> None:
    assert app_settings.keys() & REFUSED_BY_FLEX_CONSUMPTION == set()


def test_every_connection_is_an_address_and_an_identity(app_settings: dict[str, str]) -> None:
    settings = Settings.read(app_settings)

    storage = [settings.tables, settings.queues, settings.blobs]
    connections = [*storage, settings.service_bus, settings.cosmos]
    assert [each.connection_string for each in connections if each] == [None] * (
        5 if settings.store == "cosmos" else 4
    )
    assert settings.tables.address == "https://stexample.table.core.windows.net"
    assert settings.cosmos_verify_tls
    for connection in ("AzureWebJobsStorage", "ServiceBusConnection"):
        assert app_settings[f"{connection}__credential"] == "managedidentity"
        assert app_settings[f"{connection}__clientId"] == CLIENT_ID
    assert app_settings["AZURE_CLIENT_ID"] == CLIENT_ID
    assert f"ClientId={CLIENT_ID}" in app_settings["APPLICATIONINSIGHTS_AUTHENTICATION_STRING"]


def test_the_worker_sends_the_telemetry(app_settings: dict[str, str]) -> None:
    settings = Settings.read(app_settings)

    assert settings.telemetry
    assert settings.telemetry_by_worker


def test_every_name_in_a_binding_is_a_setting(
    bindings: list[dict[str, Any]], app_settings: dict[str, str]
) -> None:
    named = {name for binding in bindings for name in re.findall(r"%(\w+)%", str(binding))}

    assert named
    assert named - app_settings.keys() == set()


def test_every_connection_in_a_binding_is_configured_by_identity(
    bindings: list[dict[str, Any]], app_settings: dict[str, str]
) -> None:
    connections = {binding["connection"] for binding in bindings if "connection" in binding}

    assert connections == {"AzureWebJobsStorage", "ServiceBusConnection"}
    for connection in connections:
        assert connection not in app_settings
        assert f"{connection}__credential" in app_settings


def test_everything_a_trigger_listens_to_is_deployed(
    bindings: list[dict[str, Any]], app_settings: dict[str, str]
) -> None:
    service_bus, storage = infra.read("servicebus"), infra.read("storage")
    heard = 0
    for binding in bindings:
        where = {
            key: infra.filled_in(binding.get(key) or "", app_settings)
            for key in ("queueName", "topicName", "subscriptionName")
        }
        if binding["type"] == "serviceBusTrigger" and where["queueName"]:
            assert where["queueName"] in _names(service_bus, QUEUES)
        elif binding["type"] == "serviceBusTrigger":
            assert where["topicName"] in _names(service_bus, TOPICS)
            assert where["subscriptionName"] in _names(service_bus, SUBSCRIPTIONS)
        elif binding["type"] == "queueTrigger":
            assert where["queueName"] in _names(storage, STORAGE_QUEUES)
            assert f"{where['queueName']}-poison" in _names(storage, STORAGE_QUEUES)
        else:
            continue
        heard += 1
    assert heard >= 2


def test_every_queue_that_a_setting_names_is_deployed(app_settings: dict[str, str]) -> None:
    service_bus, storage = infra.read("servicebus"), infra.read("storage")
    for name, value in app_settings.items():
        if name.endswith("_STORAGE_QUEUE"):
            assert value in _names(storage, STORAGE_QUEUES), name
        elif name.endswith("_QUEUE"):
            assert value in _names(service_bus, QUEUES), name
        elif name.endswith("_TOPIC"):
            assert value in _names(service_bus, TOPICS), name


def test_the_blobs_that_are_imported_have_their_container(app_settings: dict[str, str]) -> None:
    containers = _names(infra.read("storage"), BLOB_CONTAINERS)

    assert app_settings["IMPORTS_CONTAINER"] in containers


def test_every_table_is_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    class Table:
        def __init__(self, _endpoint: str, name: str, **_options: Any) -> None:
            used.append(name)

    monkeypatch.setattr("azure.data.tables.aio.TableClient", Table)
    build(infra.app_settings("table"))

    assert set(used) == _names(infra.read("storage"), TABLES)


def test_every_container_is_deployed_with_the_partition_key_the_app_writes_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: dict[str, str] = {}
    make = Container.__init__

    def note(made: Container, client: Any, **given: Any) -> None:
        used[f"{given['database']}/{given['container']}"] = given["partition_path"]
        make(made, client, **given)

    monkeypatch.setattr(Container, "__init__", note)
    build(infra.app_settings("cosmos"))

    cosmos = infra.read("cosmos")
    [database] = cosmos.of_kind("Microsoft.DocumentDB/databaseAccounts/sqlDatabases")
    deployed = {}
    for each in cosmos.of_kind(CONTAINERS):
        resource = each.body["properties"]["resource"]
        [deployed[f"{database.body['name']}/{resource['id']}"]] = resource["partitionKey"]["paths"]
        # Nothing expires unless the item says so: an unfinished record never may.
        assert resource["defaultTtl"] == -1
    assert used == deployed


def _names(file: BicepFile, kind: str) -> set[str]:
    return {str(each.body["name"]) for each in file.of_kind(kind)}
