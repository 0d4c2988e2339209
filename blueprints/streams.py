"""Streams: order events that come by Event Hubs, Kafka or RabbitMQ, into the same timelines."""

import functools

import azure.functions as func

from bootstrap import App
from shared.idempotency import VersionGuard, apply_if_newer
from shared.idempotency.triggers import event_hubs, kafka, rabbitmq, stream
from shared.idempotency.triggers.body_keys import json_key
from shared.idempotency.triggers.stream import StreamEvent
from shared.order_events import OrderEvent
from shared.orders import parsed
from shared.timelines import with_event

_EVENT_KEY = json_key("source", "id")


def keep(body: bytes) -> None:
    """Keep an order event in the timeline of its order, if it is newer than what is there."""
    apply_if_newer(with_event(parsed(body, OrderEvent)))


def register(app: func.FunctionApp, parts: App, consumer: VersionGuard) -> None:
    """Register the functions whose connections are configured; ``consumer`` is that of timelines."""
    if parts.settings.event_hub is not None:
        _register_event_hub(app, parts, consumer, parts.settings.event_hub)
    if parts.settings.kafka_topic is not None:
        _register_kafka(app, parts, consumer, parts.settings.kafka_topic)
    if parts.settings.rabbitmq_queue is not None:
        _register_rabbitmq(app, parts, consumer, parts.settings.rabbitmq_queue)


def _register_event_hub(
    app: func.FunctionApp, parts: App, consumer: VersionGuard, name: str
) -> None:
    set_aside = functools.partial(parts.storage_queues.set_event_aside, parts.settings.aside_queue)

    @app.function_name("ingest_order_events")
    # without an end: after the last try the host would take the batch for done
    @app.retry(
        strategy="exponential_backoff",
        max_retry_count="-1",
        minimum_interval="00:00:02",
        maximum_interval="00:01:00",
    )
    @app.event_hub_message_trigger(
        arg_name="events",
        connection="EventHubConnection",
        event_hub_name=name,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,  # else the host fails a batch with a body that is no JSON
    )
    @event_hubs.idempotent(
        consumer, key=stream.in_body(_EVENT_KEY), set_aside=set_aside, fingerprint=None
    )
    async def ingest_order_events(event: StreamEvent) -> None:
        keep(event.body)


def _register_kafka(app: func.FunctionApp, parts: App, consumer: VersionGuard, topic: str) -> None:
    set_aside = functools.partial(parts.storage_queues.set_event_aside, parts.settings.aside_queue)

    @app.function_name("ingest_order_events_from_kafka")
    @app.retry(
        strategy="exponential_backoff",
        max_retry_count="-1",
        minimum_interval="00:00:02",
        maximum_interval="00:01:00",
    )
    @app.kafka_trigger(
        arg_name="events",
        topic=topic,
        broker_list="%KAFKA_BROKERS%",
        consumer_group="$Default",
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,  # else the host puts an envelope round each body
    )
    @kafka.idempotent(
        consumer, key=stream.in_body(_EVENT_KEY), set_aside=set_aside, fingerprint=None
    )
    async def ingest_order_events_from_kafka(event: StreamEvent) -> None:
        keep(event.body)


def _register_rabbitmq(
    app: func.FunctionApp, parts: App, consumer: VersionGuard, queue: str
) -> None:
    set_aside = functools.partial(parts.storage_queues.set_body_aside, parts.settings.aside_queue)

    @app.function_name("ingest_order_events_from_rabbitmq")
    @app.generic_trigger(
        arg_name="message",
        type="rabbitMQTrigger",
        queueName=queue,
        connectionStringSetting="RabbitMQConnection",
        data_type=func.DataType.BINARY,  # else two bodies that are no UTF-8 could become one
    )
    @rabbitmq.idempotent(
        consumer,
        key=_EVENT_KEY,
        set_aside=set_aside,
        fingerprint=None,
        pacing=parts.settings.rabbitmq_pacing,
    )
    async def ingest_order_events_from_rabbitmq(message: bytes) -> None:
        keep(message)
