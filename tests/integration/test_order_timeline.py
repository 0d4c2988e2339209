"""Order events by session: in order within an order, at once across orders, right after a lost lock."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from shared.order_events import OrderEvent
from tests.integration.conftest import RunningApp
from tests.integration.messages import eventually

pytestmark = pytest.mark.integration
TOPIC = "order-events"
SUBSCRIPTION = f"{TOPIC}/subscriptions/order-timeline"
LOCK = 60.0


def event(order_id: str, version: int) -> OrderEvent:
    return OrderEvent(
        id=f"{order_id}.{version}",
        source="/orders",
        type=f"Step{version}",
        subject=order_id,
        time=datetime(2024, 5, 1, 12, version % 60, tzinfo=UTC),
        version=version,
    )


def message(carried: OrderEvent, body: bytes | None = None) -> ServiceBusMessage:
    return ServiceBusMessage(
        carried.encoded() if body is None else body,
        message_id=carried.id,
        session_id=carried.subject,
        content_type="application/cloudevents+json",
    )


def publish(app: RunningApp, *messages: ServiceBusMessage) -> None:
    with (
        ServiceBusClient.from_connection_string(app.broker.connection_string) as bus,
        bus.get_topic_sender(TOPIC) as sender,
    ):
        for each in messages:
            sender.send_messages(each)


def timeline(app: RunningApp, order_id: str) -> dict[str, Any] | None:
    answer = app.http.get(f"/orders/{order_id}/timeline")
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def versions(app: RunningApp, order_id: str) -> list[int]:
    document = timeline(app, order_id)
    return [] if document is None else [entry["version"] for entry in document["entries"]]


def outcomes(app: RunningApp, event_id: str) -> list[str]:
    """What became of each delivery of an event, from the app's log."""
    told = f"order_timeline '{event_id}': "
    return [line.partition(told)[2] for line in app.host.output.splitlines() if told in line]


@pytest.fixture
def order_id() -> str:
    return f"ord-{uuid.uuid4().hex[:8]}"


def test_given_interleaved_events_of_five_orders_when_they_are_handled_then_each_order_has_its_own_in_order(
    app: RunningApp,
) -> None:
    order_ids = [f"ord-{uuid.uuid4().hex[:8]}" for _ in range(5)]

    publish(app, *(message(event(o, version)) for version in (1, 2, 4, 7) for o in order_ids))

    for o in order_ids:
        eventually(lambda o=o: versions(app, o) == [1, 2, 4, 7], what=o)  # type: ignore[misc]
    document = timeline(app, order_ids[0])
    assert document is not None
    assert (document["latest"], document["version"]) == ("Step7", 7)
    assert document["entries"][0]["time"] == "2024-05-01T12:01:00+00:00"


def test_given_one_order_stands_still_when_others_have_events_then_they_go_on_and_it_keeps_its_order(
    app: RunningApp, order_id: str
) -> None:
    other = f"ord-{uuid.uuid4().hex[:8]}"
    held = app.broker.faults.hold_settlement(SUBSCRIPTION, f"{order_id}.1")
    publish(app, *(message(event(o, version)) for version in (1, 2, 3) for o in (order_id, other)))

    assert held.wait(15), "the first event is handled, and its settlement hangs"
    eventually(lambda: versions(app, other) == [1, 2, 3], what="the other order's events")
    assert versions(app, order_id) == [1], "its second event waits for the first to be settled"

    held.release()
    eventually(lambda: versions(app, order_id) == [1, 2, 3], what="the rest")
    assert outcomes(app, f"{order_id}.1") == ["processed"]


def test_given_the_session_lock_is_lost_after_the_write_when_it_goes_on_then_nothing_is_lost_or_doubled(
    app: RunningApp, order_id: str
) -> None:
    held = app.broker.faults.hold_settlement(SUBSCRIPTION, f"{order_id}.3")
    publish(app, *(message(event(order_id, version)) for version in range(1, 7)))
    assert held.wait(15), "the third event is written, and not yet settled"
    assert versions(app, order_id) == [1, 2, 3]

    app.broker.clock.advance(LOCK + 1)
    held.release()

    eventually(lambda: versions(app, order_id)[-1:] == [6], what="the last event")
    assert versions(app, order_id) == [1, 2, 3, 4, 5, 6]
    assert outcomes(app, f"{order_id}.3") == ["processed", "duplicate redelivery"]
    assert [outcomes(app, f"{order_id}.{v}") for v in (4, 5, 6)] == [["processed"]] * 3


def test_given_the_connections_drop_in_a_session_when_it_goes_on_then_nothing_is_lost_or_doubled(
    app: RunningApp, order_id: str
) -> None:
    held = app.broker.faults.hold_settlement(SUBSCRIPTION, f"{order_id}.2")
    publish(app, *(message(event(order_id, version)) for version in range(1, 5)))
    assert held.wait(15)

    app.broker.drop_connections()
    app.broker.clock.advance(LOCK + 1)  # nobody renews the lock of a dead connection
    held.release()

    eventually(lambda: versions(app, order_id)[-1:] == [4], what="the last event")
    assert versions(app, order_id) == [1, 2, 3, 4]
    assert outcomes(app, f"{order_id}.2") == ["processed", "duplicate redelivery"]


def test_given_an_event_overtaken_by_its_successor_when_it_comes_then_it_is_stale_and_acknowledged(
    app: RunningApp, order_id: str
) -> None:
    publish(app, message(event(order_id, 5)), message(event(order_id, 3)))

    eventually(lambda: outcomes(app, f"{order_id}.3") == ["stale"], what="a stale event")
    assert versions(app, order_id) == [5]


def test_given_an_event_that_cannot_be_read_when_it_comes_then_it_is_dead_lettered_and_its_session_goes_on(
    app: RunningApp, order_id: str
) -> None:
    publish(
        app,
        message(event(order_id, 1)),
        message(event(order_id, 2), b'{"specversion": "1.0"}'),
        message(event(order_id, 3)),
    )

    eventually(lambda: versions(app, order_id) == [1, 3], what="the readable ones")
    dead = app.broker.messages(f"{SUBSCRIPTION}/$deadletterqueue")
    [reason] = [each.reason for each in dead if each.message_id == f"{order_id}.2"]
    assert reason == "SchemaViolation"
