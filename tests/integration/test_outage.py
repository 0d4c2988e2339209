"""Two minutes without a store: every message comes back until the store does, and none is given up.

The broker's clock runs faster than the app: locks end, and messages come back, as in two minutes,
while the app's own pauses are as short as a test can bear. The lock and the number of deliveries are
those of the deployed queue.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

import pytest
from azure.servicebus import ServiceBusMessage

from local.services.azurite import Azurite
from tests.integration.ailing_service import AilingService
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import body_of, eventually, order

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OUTAGE = 120.0
"""Seconds of the broker's time."""
FASTER = 4.0
"""How many seconds pass at the broker in one of the app's."""
LOCK = 60.0
MESSAGES = 6


@pytest.fixture(scope="module")
def store(azurite: Azurite) -> Iterator[AilingService]:
    with AilingService(azurite.ports.table) as way:
        yield way


@pytest.fixture(scope="module")
def app(azurite: Azurite, store: AilingService) -> Iterator[RunningApp]:
    direct, ailing = (
        f"TableEndpoint=http://127.0.0.1:{p}/" for p in (azurite.ports.table, store.port)
    )
    assert direct in azurite.connection_string
    with running_app(
        azurite,
        None,
        timedelta(seconds=LOCK),
        AzureWebJobsStorage=azurite.connection_string.replace(direct, ailing),
        # short, so that a delivery fails soon: given back at once, ten would be used up in no time
        IDEMPOTENCY_LEASE_SECONDS="1",
        IDEMPOTENCY_HEARTBEAT_SECONDS="0.3",
        IDEMPOTENCY_WAIT_SECONDS="2",
        IDEMPOTENCY_DEADLINE_SECONDS="10",
        PAYMENT_TIMEOUT_SECONDS="0.5",
        PAYMENT_SETTLE_SECONDS="1",
    ) as running:
        yield running


@pytest.mark.timeout(180)
@pytest.mark.parametrize("illness", ["down", "busy"])
def test_two_minutes_without_a_store_dead_letter_nothing_and_lose_nothing(
    app: RunningApp, store: AilingService, illness: Literal["down", "busy"]
) -> None:
    before = app.broker.counts("orders")
    setattr(store, illness, True)
    orders = [order() for _ in range(MESSAGES)]
    app.send(*(ServiceBusMessage(body_of(o), message_id=o["order_id"]) for o in orders))
    answered = app.http.post("/orders", json=order(), headers={"Idempotency-Key": "k" + illness})
    let_pass(app, OUTAGE)

    waiting = app.broker.messages("orders")
    assert len(waiting) == MESSAGES
    used = [m.delivery_count for m in waiting]  # deliveries that ended without settlement
    assert min(used) >= 1
    assert max(used) <= OUTAGE // LOCK
    assert store.refused > MESSAGES
    assert (answered.status_code, int(answered.headers["Retry-After"]) > 0) == (503, True)

    setattr(store, illness, False)
    app.broker.clock.advance(LOCK)
    eventually(
        lambda: app.broker.counts("orders").completed - before.completed == MESSAGES,
        what="every order processed after the outage",
    )
    after = app.broker.counts("orders")
    assert (after.dead, after.abandoned) == (0, 0)
    for placed in orders:
        assert app.http.get(f"/orders/{placed['order_id']}").status_code == 200


def let_pass(app: RunningApp, seconds: float) -> None:
    """Let time pass at the broker, faster than here."""
    until = app.broker.clock.now() + seconds
    while app.broker.clock.now() < until:
        time.sleep(0.2)
        app.broker.clock.advance(0.2 * (FASTER - 1))
