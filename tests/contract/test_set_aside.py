"""What is set aside is in the queue whole, however large: else its partition would stand still."""

import base64
import json
import os
import uuid

import pytest
from azure.storage.queue import QueueClient
from azure.storage.queue.aio import QueueServiceClient

from local.services.azurite import Azurite
from shared.idempotency.triggers.stream import StreamEvent
from shared.queues import StorageQueues


@pytest.mark.integration
async def test_given_an_event_larger_than_any_message_then_it_is_set_aside_in_parts(
    azurite: Azurite,
) -> None:
    queue = f"aside-{uuid.uuid4().hex[:8]}"
    body = os.urandom(300_000)
    async with QueueServiceClient.from_connection_string(azurite.connection_string) as client:
        queues = StorageQueues(lambda: client, orders="orders")
        small = StreamEvent(body=b"small", position="hub/0/1")
        await queues.set_event_aside(queue, small, "Reason", "why")
        await queues.set_event_aside(queue, StreamEvent(body=body, position="hub/0/2"), "R", "why")

    with QueueClient.from_connection_string(azurite.connection_string, queue) as there:
        found = [json.loads(each.content) for each in there.receive_messages(max_messages=32)]
    assert found[0] == {
        "reason": "Reason",
        "description": "why",
        "position": "hub/0/1",
        "text": "small",
    }
    parts = found[1:]
    assert {(each["reason"], each["position"], each["parts"]) for each in parts} == {
        ("R", "hub/0/2", len(parts))
    }
    parts.sort(key=lambda each: each["part"])
    assert b"".join(base64.b64decode(each["base64"]) for each in parts) == body
