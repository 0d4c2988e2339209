"""The broker's duplicate detection is the first layer: what it drops, and what it lets through to us.

The window is moved by the broker's clock. The broker is the local one; its detection is tested against
the SDK beside it.
"""

import json
import uuid

import pytest
from azure.servicebus import ServiceBusMessage

from local.servicebus import Entities
from tests.integration.conftest import ROOT, RunningApp
from tests.integration.messages import body_of, dead_letter, eventually, order

pytestmark = pytest.mark.integration
WINDOW = 600.0
"""Seconds."""


def handled(app: RunningApp, order_id: str) -> list[str]:
    """What became of each delivery of an order, as the log tells it."""
    told = f"process_order {order_id!r}: "
    return [line.split(told)[1] for line in app.host.output.splitlines() if told in line]


def send(app: RunningApp, order_id: str, **changes: object) -> None:
    """Send an order under its id as MessageId, and see all that was let in handled."""
    before = len(app.host.output)
    app.send(ServiceBusMessage(body_of(order(order_id, **changes)), message_id=order_id))
    last = f"last-{uuid.uuid4().hex[:8]}"
    app.send(ServiceBusMessage(body_of(order(last)), message_id=last))
    eventually(lambda: handled(app, last), what="the order behind it")
    eventually(
        lambda: app.broker.counts("orders").active == app.broker.counts("orders").locked == 0,
        what="the queue is empty",
    )
    assert len(app.host.output) > before


def own_id() -> str:
    return f"ord-{uuid.uuid4().hex[:12]}"


def test_it_is_on_wherever_a_producer_sends_by_business_key() -> None:
    """The same file is checked against infra/ by its own tests."""
    entities = json.loads((ROOT / "local" / "entities.json").read_text())
    [namespace] = entities["UserConfig"]["Namespaces"]
    on = {
        each["Name"]
        for each in (*namespace["Queues"], *namespace["Topics"])
        if each["Properties"]["RequiresDuplicateDetection"]
    }
    assert on == {"orders", "fulfilment", "stock-levels", "order-events"}
    assert Entities.load(ROOT / "local" / "entities.json") is not None


def test_inside_the_window_the_broker_drops_a_repetition_and_we_never_see_it(
    app: RunningApp,
) -> None:
    order_id = own_id()
    send(app, order_id)
    send(app, order_id)
    assert handled(app, order_id) == ["processed"]


def test_outside_the_window_it_is_let_in_and_absorbed_here(app: RunningApp) -> None:
    order_id = own_id()
    send(app, order_id)
    app.broker.clock.advance(WINDOW + 1)
    send(app, order_id)
    assert handled(app, order_id) == ["processed", "duplicate resend"]


def test_what_is_delivered_again_was_let_in_once_and_is_absorbed_here(app: RunningApp) -> None:
    """The broker has nothing to compare: it is the same message, whose acknowledgement was lost."""
    order_id = own_id()
    app.broker.faults.lose_settlement("orders", order_id)
    app.send(ServiceBusMessage(body_of(order(order_id)), message_id=order_id))
    eventually(lambda: len(handled(app, order_id)) == 2, what="a redelivery")
    assert handled(app, order_id) == ["processed", "duplicate redelivery"]


def test_under_another_message_id_it_is_let_in_and_absorbed_here(app: RunningApp) -> None:
    order_id = own_id()
    send(app, order_id)
    again = ServiceBusMessage(body_of(order(order_id)), message_id=uuid.uuid4().hex)
    again.application_properties = {"Deduplication-Key": order_id}
    app.send(again)
    eventually(lambda: len(handled(app, order_id)) == 2, what="a re-send")
    assert handled(app, order_id) == ["processed", "duplicate resend"]


def test_its_limit_other_content_under_a_known_id_is_dropped_unseen_inside_the_window(
    app: RunningApp,
) -> None:
    """It compares ids alone. That is why orders that come over HTTP have their content in the MessageId."""
    order_id = own_id()
    send(app, order_id)
    send(app, order_id, customer_id="somebody-else")
    assert handled(app, order_id) == ["processed"]

    app.broker.clock.advance(WINDOW + 1)
    send(app, order_id, customer_id="somebody-else")
    letter = dead_letter(app.broker, "orders", lambda m: m.message_id == order_id)
    assert letter.reason == "PayloadMismatch"
