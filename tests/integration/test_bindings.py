"""What the app's functions declare to the host."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from blueprints.auditing import BATCH_LOCK
from local.servicebus import Entities
from tests.integration.conftest import ROOT

SETTINGS = {
    "AzureWebJobsStorage": "UseDevelopmentStorage=true",
    "ServiceBusConnection": "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "",
}
# The functions of an app can be asked for once only: hence a process of its own.
DECLARED = """
import json
import function_app
print(json.dumps([json.loads(str(f)) for f in function_app.app.get_functions()]))
"""


def triggers(**settings: str) -> list[dict[str, Any]]:
    """The trigger of every function, as the host is told of it."""
    run = subprocess.run(  # noqa: S603 - this repository's own program
        [sys.executable, "-c", DECLARED],
        cwd=ROOT,
        env={**os.environ, **SETTINGS, **settings},
        capture_output=True,
        check=True,
        text=True,
    )
    return [
        binding
        for function in json.loads(run.stdout)
        for binding in function["bindings"]
        if binding["type"].endswith("Trigger")
    ]


@pytest.mark.parametrize(("settlement", "auto"), [("binding", False), ("quarantine-queue", True)])
def test_given_a_settlement_when_the_app_is_indexed_then_every_trigger_completes_as_it_needs(
    settlement: str, auto: bool
) -> None:
    """If the host completed by itself, a message left to come back later would be lost."""
    completes = {
        trigger.get("queueName") or trigger["topicName"]: trigger["autoCompleteMessages"]
        for trigger in triggers(SERVICEBUS_SETTLEMENT=settlement)
        if trigger["type"] == "serviceBusTrigger"
    }
    assert "%ORDERS_QUEUE%" in completes
    assert set(completes.values()) == {auto}, completes


def test_given_triggers_of_many_then_their_bodies_come_as_bytes() -> None:
    """Of any other type, one body that is empty or no JSON fails all of its batch in Azure's host."""
    settings = {
        "EventHubConnection": "Endpoint=sb://localhost",
        "KAFKA_BROKERS": "localhost:1",
        "RabbitMQConnection": "amqp://localhost:1",
    }
    data_types = {
        trigger["type"]: trigger.get("dataType")
        for trigger in triggers(**settings)
        if trigger.get("cardinality", "").lower() == "many" or trigger["type"] == "rabbitMQTrigger"
    }
    assert data_types == {
        "serviceBusTrigger": "BINARY",
        "eventHubTrigger": "BINARY",
        "kafkaTrigger": "BINARY",
        "rabbitMQTrigger": "BINARY",
    }


def test_given_a_batch_whose_locks_are_not_renewed_then_it_knows_how_long_they_are() -> None:
    """The entity file is compared with infra/ by its own tests."""
    [audit] = [
        subscription
        for topic in Entities.load(ROOT / "local" / "entities.json").topics
        for subscription in topic.subscriptions
        if subscription.name == "audit"
    ]
    assert audit.lock.total_seconds() == BATCH_LOCK
