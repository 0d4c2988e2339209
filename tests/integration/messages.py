"""What the integration tests send, and how they wait."""

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from azure.storage.queue import QueueClient

from local.servicebus import Broker, Snapshot


def order(order_id: str | None = None, **changes: Any) -> dict[str, Any]:
    """A valid order, of an id of its own unless one is given; the same for the same id.

    Its customer is its own: two orders of one meet at the customer's account.
    """
    own = order_id or f"ord-{uuid.uuid4().hex[:12]}"
    return {
        "order_id": own,
        "customer_id": f"cust-{hashlib.sha256(own.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}",
        "currency": "EUR",
        "lines": [{"sku": "tea", "quantity": 2, "unit_price": "4.90"}],
        **changes,
    }


def body_of(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def storage_queue(connection_string: str, name: str) -> QueueClient:
    return QueueClient.from_connection_string(connection_string, name)


def eventually[T](look: Callable[[], T | None], *, within: float = 20.0, what: str) -> T:
    """The first answer of ``look`` that is not None or False."""
    give_up = time.monotonic() + within
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(0.05)


def dead_letter(broker: Broker, queue: str, is_it: Callable[[Snapshot], bool]) -> Snapshot:
    """The first dead letter of a queue that is the one looked for."""
    return eventually(
        lambda: next((m for m in broker.messages(f"{queue}/$deadletterqueue") if is_it(m)), None),
        what="a dead letter",
    )
