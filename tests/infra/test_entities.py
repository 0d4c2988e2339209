"""Deployed Service Bus entities are the local ones, and records outlive what can come out of them."""

import json
from typing import Any

import pytest

from local.deployment import infra
from local.deployment.bicep import BicepFile
from local.deployment.infra import ROOT
from local.servicebus.durations import parse_duration
from local.servicebus.entities import Entities
from shared.idempotency.retention import Window, complaint
from shared.settings import Settings

ENTITIES = ROOT / "local" / "entities.json"
NAMESPACE = "Microsoft.ServiceBus/namespaces"


@pytest.fixture
def app_settings() -> dict[str, str]:
    return infra.app_settings("table")


@pytest.fixture
def service_bus() -> BicepFile:
    return infra.read("servicebus")


def _bodies(file: BicepFile, kind: str) -> list[dict[str, Any]]:
    return [each.body for each in file.of_kind(f"{NAMESPACE}/{kind}")]


def _as_config(body: dict[str, Any]) -> dict[str, Any]:
    """A Bicep entity in the words of the local entity file."""
    properties = {name[0].upper() + name[1:]: value for name, value in body["properties"].items()}
    return {"Name": body["name"], "Properties": properties}


def _deployed(file: BicepFile) -> Entities:
    [topic] = _bodies(file, "topics")
    subscriptions = [_as_config(each) for each in _bodies(file, "topics/subscriptions")]
    namespace = {
        "Queues": [_as_config(each) for each in _bodies(file, "queues")],
        "Topics": [{**_as_config(topic), "Subscriptions": subscriptions}],
    }
    return Entities.parse({"UserConfig": {"Namespaces": [namespace]}})


def test_the_deployed_queues_are_the_local_ones(service_bus: BicepFile) -> None:
    deployed, local = _deployed(service_bus), Entities.load(ENTITIES)

    assert {each.name: each for each in deployed.queues} == {
        each.name: each for each in local.queues
    }


def test_the_deployed_topic_and_its_subscriptions_are_the_local_ones(
    service_bus: BicepFile,
) -> None:
    [deployed], [local] = _deployed(service_bus).topics, Entities.load(ENTITIES).topics

    for topic in (deployed, local):
        assert topic.time_to_live
    assert (deployed.name, deployed.time_to_live) == (local.name, local.time_to_live)
    assert deployed.detection_window == local.detection_window
    of_local = {each.name: each for each in local.subscriptions}
    assert {each.name for each in deployed.subscriptions} == of_local.keys()
    for each in deployed.subscriptions:
        same = of_local[each.name]
        assert (each.lock, each.max_delivery_count) == (same.lock, same.max_delivery_count)
        assert each.dead_letter_on_expiration == same.dead_letter_on_expiration
        assert each.requires_session == same.requires_session
        # A message lives for the shorter of the topic's time and the subscription's.
        assert each.time_to_live == local.time_to_live


def test_nothing_that_decides_how_long_a_message_lives_is_left_to_a_default(
    service_bus: BicepFile,
) -> None:
    for body in _bodies(service_bus, "queues") + _bodies(service_bus, "topics/subscriptions"):
        properties = body["properties"]
        assert {"lockDuration", "maxDeliveryCount", "defaultMessageTimeToLive"} <= properties.keys()
        assert {"requiresSession", "deadLetteringOnMessageExpiration"} <= properties.keys()
        # Azure allows locks of five minutes at most; the waiting of a duplicate needs one.
        assert 60 <= parse_duration(properties["lockDuration"]).total_seconds() <= 300
    for body in _bodies(service_bus, "queues") + _bodies(service_bus, "topics"):
        assert "requiresDuplicateDetection" in body["properties"]
        assert body["properties"]["requiresDuplicateDetection"] == (
            "duplicateDetectionHistoryTimeWindow" in body["properties"]
        )


def test_an_expired_order_is_dead_lettered_never_dropped(service_bus: BicepFile) -> None:
    for body in _bodies(service_bus, "queues") + _bodies(service_bus, "topics/subscriptions"):
        dropped = not body["properties"]["deadLetteringOnMessageExpiration"]
        # What is in quarantine was refused already, and is there to be looked at.
        assert dropped == (body["name"] == "quarantine")


def test_records_outlive_every_message_that_can_still_come_back(
    service_bus: BicepFile, app_settings: dict[str, str]
) -> None:
    settings = Settings.read(app_settings)
    dead_letters = service_bus.outputs["deadLetterDays"] * 86400.0

    for window in _windows(service_bus, dead_letters):
        policy = settings.policy
        assert complaint(window, retention=policy.retention, max_age=policy.max_age) is None


def test_the_policy_assumes_the_delivery_count_that_is_deployed(
    service_bus: BicepFile, app_settings: dict[str, str]
) -> None:
    policy = Settings.read(app_settings).policy

    counts = {window.max_delivery_count for window in _windows(service_bus, 0.0)}
    assert counts == {policy.max_delivery_count}


@pytest.mark.parametrize("kind", ["queues", "topics/subscriptions"])
def test_given_a_longer_life_then_the_retention_check_would_complain(
    service_bus: BicepFile, app_settings: dict[str, str], kind: str
) -> None:
    policy = Settings.read(app_settings).policy
    body = _bodies(service_bus, kind)[0]
    longer = {**body, "properties": {**body["properties"], "defaultMessageTimeToLive": "P17D"}}

    told = complaint(_window(longer, 14 * 86400.0), retention=policy.retention, max_age=None)

    assert told is not None
    assert "h too short" in told


def _windows(file: BicepFile, dead_letters: float) -> list[Window]:
    bodies = _bodies(file, "queues") + _bodies(file, "topics/subscriptions")
    return [_window(body, dead_letters) for body in bodies if body["name"] != "quarantine"]


def _window(body: dict[str, Any], dead_letters: float) -> Window:
    properties = body["properties"]
    return Window(
        entity=body["name"],
        max_delivery_count=properties["maxDeliveryCount"],
        lock=parse_duration(properties["lockDuration"]).total_seconds(),
        time_to_live=parse_duration(properties["defaultMessageTimeToLive"]).total_seconds(),
        dead_letters=dead_letters,
    )


def test_the_local_retention_is_the_deployed_one(app_settings: dict[str, str]) -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]

    name = "IDEMPOTENCY_RETENTION_DAYS"
    assert sample[name] == app_settings[name]
