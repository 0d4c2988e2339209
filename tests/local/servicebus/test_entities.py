"""Reading the official emulator's entity file."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from local.servicebus import Entities, EntitiesError, QueueSettings, TopicSettings
from local.servicebus.durations import parse_duration

OWN_FILE = Path(__file__).parents[3] / "local" / "entities.json"


def config(**queue: Any) -> dict[str, Any]:
    entry = {"Name": "q", "Properties": queue}
    return {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [entry]}]}}


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT1M", timedelta(minutes=1)),
        ("P14D", timedelta(days=14)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0.25S", timedelta(seconds=0.25)),
    ],
)
def test_durations_of_fixed_length_are_read(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1M", "P1Y", "1M", "PT1M ", "PT-1S"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no ISO 8601 duration"):
        parse_duration(text)


def test_the_projects_own_file_is_read() -> None:
    entities = Entities.load(OWN_FILE)
    assert entities.names() == (
        "orders",
        "quarantine",
        "fulfilment",
        "stock-levels",
        "order-events",
        "order-events/subscriptions/email",
        "order-events/subscriptions/loyalty",
        "order-events/subscriptions/payments",
        "order-events/subscriptions/audit",
        "order-events/subscriptions/order-timeline",
    )
    assert entities.queue("orders") == QueueSettings(
        "orders",
        lock=timedelta(minutes=1),
        max_delivery_count=10,
        time_to_live=timedelta(days=14),
        dead_letter_on_expiration=True,
        detection_window=timedelta(minutes=10),
    )
    assert entities.queue("quarantine").detection_window is None
    assert entities.topic("order-events").detection_window == timedelta(minutes=10)


def test_what_is_not_set_has_the_services_defaults() -> None:
    entities = Entities.parse(config(RequiresDuplicateDetection=True, ForwardTo=""))
    assert entities.queue("q") == QueueSettings("q", detection_window=timedelta(minutes=10))
    assert entities.queue("q").time_to_live is None


def test_the_longest_time_to_live_means_for_ever() -> None:
    entities = Entities.parse(config(DefaultMessageTimeToLive="P10675199DT2H48M5.4775807S"))
    assert entities.queue("q").time_to_live is None


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"ForwardTo": "other"}, "ForwardTo"),
        ({"LockDuration": "1 minute"}, "1 minute"),
        ({"MaxDeliveryCount": 0}, "max delivery count"),
    ],
)
def test_a_file_that_asks_for_the_impossible_is_refused_by_name(
    tmp_path: Path, properties: dict[str, Any], named: str
) -> None:
    path = tmp_path / "entities.json"
    path.write_text(json.dumps(config(**properties)))
    with pytest.raises(EntitiesError, match=named) as refused:
        Entities.load(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["", "{}", '{"UserConfig": {"Namespaces": []}}', "[]"])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "entities.json"
    path.write_text(text)
    with pytest.raises(EntitiesError):
        Entities.load(path)
    with pytest.raises(EntitiesError):
        Entities.load(tmp_path / "missing.json")


def test_changes_give_new_entities_and_leave_the_old_ones() -> None:
    old = Entities(
        queues=(QueueSettings("orders"), QueueSettings("other")),
        topics=(TopicSettings("events", subscriptions=(QueueSettings("email"),)),),
    )
    new = (
        old.with_queue("orders", lock=timedelta(seconds=5), detection_window=timedelta(seconds=15))
        .with_queue("events/subscriptions/email", max_delivery_count=2)
        .with_topic("events", detection_window=timedelta(seconds=1))
    )
    assert new.queue("orders").lock == timedelta(seconds=5)
    assert new.queue("orders").detection_window == timedelta(seconds=15)
    assert new.queue("events/subscriptions/email").max_delivery_count == 2
    assert new.topic("events").detection_window == timedelta(seconds=1)
    assert new.queue("other") == old.queue("other")
    assert old.queue("orders").lock == timedelta(minutes=1)
    with pytest.raises(EntitiesError, match="orders"):
        old.with_queue("ordres", max_delivery_count=1)
