"""Imports: orders out of a file that a message names, through the handler of all orders."""

import functools
import math

import azure.functions as func

from blueprints.orders import events_topic, place_order
from bootstrap import App
from shared.idempotency import ConfigurationError, Effects, Inbox, Rerun
from shared.idempotency.triggers import storage_queue
from shared.import_messages import ImportMessage, Progress, message_key
from shared.imports import Importer


def register(app: func.FunctionApp, parts: App, orders: Inbox) -> None:
    """Register the function. ``orders`` is the consumer of orders, whatever brings them in."""
    settings = parts.settings
    queue = settings.imports.queue
    chunk_seconds = settings.policy.lease * 2 / 3
    if settings.imports.slice_seconds + chunk_seconds > settings.policy.deadline:
        raise ConfigurationError(
            f"app setting IMPORT_SLICE_SECONDS ({settings.imports.slice_seconds:g}) and two thirds of "
            f"IDEMPOTENCY_LEASE_SECONDS ({settings.policy.lease:g}) must not exceed "
            f"IDEMPOTENCY_DEADLINE_SECONDS ({settings.policy.deadline:g}): a slice must end by itself"
        )
    importer = Importer(
        parts.blobs,
        orders,
        functools.partial(place_order, events_topic=events_topic(parts)),
        lambda message: parts.storage_queues.send(queue, message.decode()),
        slice_seconds=settings.imports.slice_seconds,
        chunk_seconds=chunk_seconds,
    )
    # Rows, parts of the blob of errors, a slice's message: done again they are the same. In doubt is nothing.
    effects = Effects(
        policy=Rerun(provider_key_retention=math.inf),
        settle=chunk_seconds,
        unknown_effect=lambda error: False,
    )

    @app.function_name("import_orders")
    @app.queue_trigger(arg_name="message", queue_name=queue, connection="AzureWebJobsStorage")
    @storage_queue.idempotent(
        parts.consumer("import_orders", effects=effects),
        key=storage_queue.OfMessage(lambda m: message_key(m.get_body(), m.id)),
        poison_queue=functools.partial(parts.storage_queues.set_aside, queue),
        pacing=settings.pacing,
    )
    async def import_orders(message: func.QueueMessage) -> Progress:
        return await importer.handle(ImportMessage.of(message.get_body()))
