"""Stock levels through the whole app: the newest wins, on each store, and nothing is recorded."""

import itertools
import random
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.integration.conftest import RunningApp
from tests.integration.messages import body_of, dead_letter, eventually

pytestmark = pytest.mark.integration
QUEUE = "stock-levels"
numbers = itertools.count(1)


def level(sku: str, version: int, **changes: Any) -> dict[str, Any]:
    return {
        "sku": sku,
        "warehouse": "ham-1",
        "level": version * 10,
        "version": version,
        **changes,
    }


def send(app: RunningApp, *contents: dict[str, Any] | bytes) -> None:
    """Send each as a message of its own id: the broker's detection must not do our work."""
    with (
        ServiceBusClient.from_connection_string(app.broker.connection_string) as bus,
        bus.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(
                    content if isinstance(content, bytes) else body_of(content),
                    message_id=f"m-{next(numbers)}",
                )
                for content in contents
            ]
        )


def kept(app: RunningApp, sku: str) -> dict[str, Any] | None:
    answer = app.http.get(f"/stock/ham-1/{sku}")
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def settled(app: RunningApp, completed: int) -> bool:
    counts = app.broker.counts(QUEUE)
    return counts.completed == completed and counts.active == counts.locked == 0


def outcomes(app: RunningApp, outcome: str) -> int:
    return sum(
        "stock_level_changed" in line and f": {outcome}" in line
        for line in app.host.output.splitlines()
    )


@pytest.fixture
def sku() -> str:
    return f"tea-{uuid.uuid4().hex[:8]}"


def test_given_levels_in_any_order_with_duplicates_when_all_are_handled_then_the_newest_is_kept(
    app: RunningApp, sku: str
) -> None:
    versions = [*range(1, 16), *range(1, 16)]
    random.Random(7).shuffle(versions)  # noqa: S311 - any order, but the same in each run
    before = app.broker.counts(QUEUE).completed

    send(app, *(level(sku, version) for version in versions))

    eventually(lambda: settled(app, before + 30), what="thirty settled")
    assert kept(app, sku) == {
        "type": "stock_level",
        "sku": sku,
        "warehouse": "ham-1",
        "level": 150,
        "version": 15,
    }
    assert app.broker.counts(QUEUE).dead == 0


def test_given_a_level_when_older_and_equal_ones_come_then_they_are_acknowledged_and_counted(
    app: RunningApp, sku: str
) -> None:
    before = app.broker.counts(QUEUE).completed
    counted = {name: outcomes(app, name) for name in ("stale", "duplicate")}
    send(app, level(sku, 5))
    eventually(lambda: settled(app, before + 1), what="the first")

    send(app, level(sku, 4), level(sku, 5, level=99))

    eventually(lambda: settled(app, before + 3), what="all acknowledged")
    document = kept(app, sku)
    assert document is not None
    assert document["level"] == 50
    eventually(
        lambda: (
            {n: outcomes(app, n) - c for n, c in counted.items()} == {"stale": 1, "duplicate": 1}
        ),
        what="one stale, one duplicate",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no json", "MalformedJson"),
        (body_of(level("x", 1, level=-1)), "SchemaViolation"),
        (body_of(level("x", -1, level=1)), "SchemaViolation"),
        (body_of(level("x", 1, warehouse="a.b")), "SchemaViolation"),
    ],
)
def test_given_a_message_that_carries_no_level_when_it_comes_then_it_is_dead_lettered_with_the_reason(
    app: RunningApp, content: bytes, reason: str
) -> None:
    send(app, content)
    assert dead_letter(app.broker, QUEUE, lambda m: m.body == content).reason == reason


def test_given_no_report_when_a_level_is_asked_for_then_it_is_not_found(app: RunningApp) -> None:
    answer = app.http.get("/stock/ham-1/never-reported")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/problem+json")
