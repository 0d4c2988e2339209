"""What the app's functions declare to the host."""

import json
import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(("settlement", "auto"), [("binding", False), ("quarantine-queue", True)])
def test_given_a_settlement_when_the_app_is_indexed_then_every_trigger_completes_as_it_needs(
    settlement: str, auto: bool
) -> None:
    """If the host completed by itself, a message left to come back later would be lost."""
    run = subprocess.run(  # noqa: S603 - this repository's own program
        [sys.executable, "-c", DECLARED],
        cwd=ROOT,
        env={**os.environ, **SETTINGS, "SERVICEBUS_SETTLEMENT": settlement},
        capture_output=True,
        check=True,
        text=True,
    )
    triggers = [
        (binding["queueName"] if "queueName" in binding else binding["topicName"], binding)
        for function in json.loads(run.stdout)
        for binding in function["bindings"]
        if binding["type"] == "serviceBusTrigger"
    ]
    assert "%ORDERS_QUEUE%" in dict(triggers)
    for entity, trigger in triggers:
        assert trigger["autoCompleteMessages"] is auto, entity
