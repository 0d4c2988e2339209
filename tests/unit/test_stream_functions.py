"""The functions that read logs: the host must never pass over a batch by itself."""

import azure.functions as func
import pytest

from blueprints import timelines
from bootstrap import build

STREAMS = {
    "AzureWebJobsStorage": "UseDevelopmentStorage=true",
    "EventHubConnection": "Endpoint=sb://localhost",
    "KAFKA_BROKERS": "localhost:9092",
    "RabbitMQConnection": "amqp://localhost",
}


def registered(settings: dict[str, str]) -> dict[str | None, func.decorators.function_app.Function]:
    app = func.FunctionApp()
    timelines.register(app, build(settings))
    return {function.get_function_name(): function for function in app.get_functions()}


@pytest.mark.parametrize("name", ["ingest_order_events", "ingest_order_events_from_kafka"])
def test_a_log_s_function_is_tried_again_without_an_end(name: str) -> None:
    """After the last try the host would take the batch for done, and what failed would be lost."""
    policy = registered(STREAMS)[name].get_setting("retry_policy")
    assert policy is not None
    assert policy.get_dict_repr()["max_retry_count"] == "-1"


def test_without_their_connections_none_of_them_is_there_but_timelines_can_be_read() -> None:
    alone = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
    assert registered(alone).keys() == {"get_order_timeline"}
    assert len(registered(STREAMS)) == 4
