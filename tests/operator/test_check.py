"""The linter names what does not go together, with the numbers; what the commands read, and from where."""

import ast
import json
import re
import runpy
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import pytest

from local.deployment import infra
from local.deployment.infra import ROOT
from local.services.azurite import Azurite
from shared.idempotency import ConfigurationError, Policy
from shared.idempotency.broker_windows import complaints, windows_in_file, windows_of_namespace
from shared.idempotency.cli import exits
from shared.idempotency.cli.places import Catalogue
from shared.idempotency.retention import Window
from tests.operator.bench import Operator

DAY = 86400.0
ENTITIES = ROOT / "local" / "entities.json"


def an_entity_file(folder: Path, **properties: Any) -> Path:
    told = {"DefaultMessageTimeToLive": "P14D", "LockDuration": "PT1M", "MaxDeliveryCount": 10}
    queue = {"Name": "orders", "Properties": {**told, **properties}}
    file = folder / "entities.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Queues": [queue]}]}}))
    return file


def test_the_windows_of_the_local_broker_are_those_of_its_entity_file() -> None:
    windows = {w.entity: w for w in windows_in_file(ENTITIES, dead_letters=14 * DAY)}

    assert windows["orders"].seconds == 10 * 60 + 28 * DAY
    # a message lives for the shorter of the topic's time and the subscription's
    assert windows["order-events/email"].time_to_live == 14 * DAY
    assert complaints(windows.values(), Policy(retention=30 * DAY)) == []


def test_a_time_to_live_that_never_ends_is_none(tmp_path: Path) -> None:
    forever = "P10675199DT2H48M5.4775807S"
    [window] = windows_in_file(
        an_entity_file(tmp_path, DefaultMessageTimeToLive=forever), dead_letters=0.0
    )

    assert window.time_to_live is None
    assert "never expire" in complaints([window], Policy())[0]


def test_a_message_of_a_subscription_lives_for_the_shorter_of_two_times(tmp_path: Path) -> None:
    def of(days: int) -> dict[str, Any]:
        return {"DefaultMessageTimeToLive": f"P{days}D"}

    topics = [
        {"Name": f"t{n}", "Properties": of(topic),
         "Subscriptions": [{"Name": "s", "Properties": of(subscription)}]}
        for n, (topic, subscription) in enumerate([(2, 9), (9, 3)])
    ]  # fmt: skip
    file = tmp_path / "entities.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Topics": topics}]}}))

    windows = windows_in_file(file, dead_letters=0.0)

    assert [window.time_to_live for window in windows] == [2 * DAY, 3 * DAY]


@pytest.mark.parametrize("text", ["", "{}", '{"UserConfig": {"Namespaces": [{"Queues": [{}]}]}}'])
def test_a_file_that_is_no_entity_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)

    with pytest.raises(ConfigurationError, match=r"other\.json"):
        windows_in_file(file, dead_letters=0.0)


class Namespace:
    """Answers as the management client does; its own answers cannot be had without Azure."""

    async def list_queues(self) -> Any:
        yield SimpleNamespace(
            name="orders",
            max_delivery_count=10,
            lock_duration=timedelta(minutes=5),
            default_message_time_to_live=timedelta(days=60),
        )

    async def list_topics(self) -> Any:
        yield SimpleNamespace(
            name="events", default_message_time_to_live=timedelta(days=10_675_199)
        )

    async def list_subscriptions(self, topic: str) -> Any:
        yield SimpleNamespace(
            name=f"of-{topic}",
            max_delivery_count=3,
            lock_duration="PT30S",
            default_message_time_to_live="P10675199DT2H48M5.4775807S",
        )
        yield SimpleNamespace(
            name="short",
            max_delivery_count=3,
            lock_duration="PT30S",
            default_message_time_to_live=timedelta(days=2),
        )


async def test_the_windows_of_a_namespace_are_what_it_says_of_itself() -> None:
    client: Any = Namespace()

    queue, subscription, short = await windows_of_namespace(client, dead_letters=DAY)

    assert queue.seconds == 10 * 300 + 61 * DAY
    assert short.time_to_live == 2 * DAY
    assert subscription == Window(
        entity="events/of-events",
        max_delivery_count=3,
        lock=30.0,
        time_to_live=None,
        dead_letters=DAY,
    )


def test_each_number_that_does_not_fit_is_a_complaint_of_its_own() -> None:
    window = Window(
        entity="orders", max_delivery_count=2, lock=30.0, time_to_live=60 * DAY, dead_letters=0.0
    )

    told = complaints([window], Policy(retention=30 * DAY))

    assert len(told) == 3
    assert "720 h" in told[0]
    assert "30 s" in told[1]
    assert "45 s" in told[1]
    assert "45 s" in told[2]
    assert complaints([window], Policy(), entities=["another"]) == []


@pytest.mark.parametrize(
    ("lock", "wait", "least"),
    [(59.0, 45.0, 60), (60.0, 45.0, None), (60.0, 90.0, 90), (90.0, 90.0, None)],
)
def test_a_lock_below_a_minute_or_below_the_wait_is_named_with_what_to_set(
    lock: float, wait: float, least: int | None
) -> None:
    window = Window(
        entity="orders", max_delivery_count=10, lock=lock, time_to_live=DAY, dead_letters=0.0
    )
    told = complaints([window], Policy(wait=wait))
    if least is None:
        assert told == []
    else:
        (complaint,) = told
        assert complaint.startswith(f"orders: its LockDuration of {lock:g} s is too short")
        assert complaint.endswith(f"Set LockDuration to {least} s or more")


@pytest.mark.integration
def test_check_ends_with_1_and_the_numbers_where_records_go_too_early(
    tmp_path: Path, azurite: Azurite
) -> None:
    operator = Operator(tmp_path, azurite)
    file = an_entity_file(tmp_path, DefaultMessageTimeToLive="P20D")

    wrong = operator("check", "--entity-file", str(file), "--json")
    shown = operator("check", "--entity-file", str(file))
    right = operator("--retention-days", "40", "check", "--entity-file", str(file))
    by_setting = operator(
        "check", "--entity-file", str(file), environment={"IDEMPOTENCY_RETENTION_DAYS": "40"}
    )

    assert wrong.code == shown.code == 1
    assert "96.1667 h too short" in wrong.told["complaints"][0]
    assert "96.1667 h too short" in shown.out
    assert right.code == by_setting.code == 0
    assert operator("check").code == 2, "no entity file is named in this catalogue"
    assert operator("check", "--entity-file", str(tmp_path / "none.json")).code == 2


def test_the_exit_codes_that_are_told_are_those_there_are() -> None:
    told = re.findall(r"^(\d)  ", exits.__doc__ or "", re.MULTILINE)

    assert [int(code) for code in told] == [int(code) for code in exits.Exit]


def test_only_the_options_of_the_command_line_read_the_environment() -> None:
    """Beside `bootstrap.py`, which alone does in the app: none of this is deployed."""
    readers = set()
    for path in (ROOT / "shared").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "arg", None)))
            if name in ("environ", "environb", "getenv", "envvar"):
                readers.add(str(path.relative_to(ROOT)))

    assert readers == {"shared/idempotency/cli/options.py"}


def test_the_catalogue_names_what_each_trigger_of_the_app_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = infra.app_settings("table")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("AzureWebJobsStorage", "ServiceBusConnection", "COSMOS_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    app: func.FunctionApp = runpy.run_path(str(ROOT / "function_app.py"))["app"]
    read = set()
    for function in app.get_functions():
        binding = function.get_bindings()[0].get_dict_repr()
        if binding["type"] == "serviceBusTrigger":
            queue = infra.filled_in(binding.get("queueName") or "", settings)
            topic = infra.filled_in(binding.get("topicName") or "", settings)
            subscription = infra.filled_in(binding.get("subscriptionName") or "", settings)
            read.add((function.get_function_name(), queue or f"{topic}/{subscription}"))

    catalogue = Catalogue.read(ROOT / "pyproject.toml")

    assert read == set(catalogue.sources.items())
    assert catalogue.records == (settings["RECORDS_CONTAINER"],)
    assert catalogue.markers == {
        settings["ORDERS_CONTAINER"]: "order_id",
        settings["LEDGERS_CONTAINER"]: "ledger",
    }
    assert catalogue.cosmos_database == settings["COSMOS_DATABASE"]
