"""Customers are charged through the whole app: broker, host, worker, store, and a provider that fails."""

import time
import uuid
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.host.process import HostProcess
from local.payments import PaymentProvider
from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from tests.integration.conftest import ROOT, RunningApp, running_app
from tests.integration.messages import dead_letter, eventually
from tests.integration.test_payment_policies import placed

pytestmark = pytest.mark.integration
TOPIC = "order-events"
SUBSCRIPTION = f"{TOPIC}/subscriptions/payments"
QUICK = {
    "IDEMPOTENCY_LEASE_SECONDS": "3",
    "IDEMPOTENCY_HEARTBEAT_SECONDS": "1",
    "IDEMPOTENCY_WAIT_SECONDS": "6",
    "IDEMPOTENCY_DEADLINE_SECONDS": "20",
    "PAYMENT_TIMEOUT_SECONDS": "1",
    "PAYMENT_SETTLE_SECONDS": "1",
    "MAIL_TIMEOUT_SECONDS": "1",
}


class PaymentsApp:
    """The running app, and the provider that it calls."""

    def __init__(self, app: RunningApp, provider: PaymentProvider) -> None:
        self.app = app
        self.provider = provider

    def publish(self, order_id: str, *, times: int = 1, total: str = "12.50") -> None:
        """Publish OrderPlaced, each time as a message of its own about the same event."""
        body = placed(order_id, total).encoded()
        with (
            ServiceBusClient.from_connection_string(self.app.broker.connection_string) as bus,
            bus.get_topic_sender(TOPIC) as sender,
        ):
            for number in range(times):
                again = {"Deduplication-Key": f"event-{order_id}"} if number else None
                message = ServiceBusMessage(
                    body,
                    message_id=f"event-{order_id}" if not number else uuid.uuid4().hex,
                    session_id=order_id,
                    application_properties=again,  # type: ignore[arg-type]
                )
                sender.send_messages(message)

    def all_settled(self, *, within: float = 40.0) -> None:
        """Wait until nothing is left in the subscription."""

        def settled() -> bool:
            counts = self.app.broker.counts(SUBSCRIPTION)
            return counts.active == counts.locked == 0

        eventually(settled, within=within, what="the subscription of payments is empty")


@pytest.fixture(scope="module", params=["table", pytest.param("cosmos", marks=pytest.mark.slow)])
def payments(request: pytest.FixtureRequest) -> Iterator[PaymentsApp]:
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    with (
        PaymentProvider() as provider,
        running_app(azurite, cosmos, PAYMENT_PROVIDER_URL=provider.url, **QUICK) as app,
    ):
        yield PaymentsApp(app, provider)


@pytest.fixture
def order_id() -> str:
    return f"ord-{uuid.uuid4().hex[:12]}"


def test_given_an_order_placed_when_it_is_told_three_times_then_it_is_charged_once(
    payments: PaymentsApp, order_id: str
) -> None:
    payments.publish(order_id, times=3)
    payments.all_settled()
    [charge] = payments.provider.charges(order_id)
    assert (str(charge.amount), charge.currency, charge.customer_id) == ("12.50", "EUR", "c-1")


def test_given_every_kind_of_fault_when_orders_are_told_twice_then_each_is_charged_once(
    payments: PaymentsApp,
) -> None:
    faults = payments.provider.faults
    orders = {
        "time-out before": faults.time_out_before_charging,
        "time-out after": faults.time_out_after_charging,
        "500 before": faults.fail_before_charging,
        "500 after": faults.fail_after_charging,
        "dropped before": faults.drop_connection_before,
        "dropped after": faults.drop_connection_after,
        "throttled": faults.throttle,
    }
    run = uuid.uuid4().hex[:6]
    for name, fault in orders.items():
        fault(reference=f"{name}/{run}")
    faults.land_later(0.5, reference=f"late/{run}")
    for name in (*orders, "late"):
        payments.publish(f"{name}/{run}", times=2)

    payments.all_settled()

    charged = {name: len(payments.provider.charges(f"{name}/{run}")) for name in (*orders, "late")}
    assert charged == dict.fromkeys(charged, 1)
    assert payments.app.broker.counts(SUBSCRIPTION).dead_lettered == 0


def test_given_a_declined_card_then_the_message_is_dead_lettered_with_the_reason(
    payments: PaymentsApp, order_id: str
) -> None:
    payments.provider.decline(order_id)
    payments.publish(order_id)
    letter = dead_letter(
        payments.app.broker, SUBSCRIPTION, lambda m: order_id.encode() in (m.body or b"")
    )
    assert letter.reason == "CardDeclined"
    assert payments.provider.charges(order_id) == ()


def test_given_an_outage_then_messages_are_paced_and_none_is_dead_lettered_or_charged_twice(
    payments: PaymentsApp, order_id: str
) -> None:
    dead = payments.app.broker.counts(SUBSCRIPTION).dead
    refused = payments.provider.faults.struck["outage"]
    payments.provider.faults.outage()
    began = time.monotonic()
    payments.publish(order_id)
    payments.provider.wait_for(lambda p: p.faults.struck["outage"] >= refused + 3, timeout=30)
    paced = time.monotonic() - began
    payments.provider.faults.outage(on=False)
    payments.all_settled()
    assert paced > 2 * 3, "each delivery is left until its lock ends"
    assert len(payments.provider.charges(order_id)) == 1
    assert payments.app.broker.counts(SUBSCRIPTION).dead == dead


def test_given_nothing_to_pay_then_nobody_is_charged(payments: PaymentsApp, order_id: str) -> None:
    payments.publish(order_id, total="0.00")
    payments.all_settled()
    assert payments.provider.charges(order_id) == ()


@pytest.mark.slow
@pytest.mark.parametrize("charged", [True, False], ids=["after charging", "before charging"])
def test_given_the_process_is_killed_in_the_middle_of_a_call_then_it_is_charged_once(
    azurite: Azurite, order_id: str, charged: bool
) -> None:
    with (
        PaymentProvider() as provider,
        running_app(azurite, None, PAYMENT_PROVIDER_URL=provider.url, **QUICK) as app,
    ):
        faults = provider.faults
        silence = faults.time_out_after_charging if charged else faults.time_out_before_charging
        silence(reference=order_id)
        shop = PaymentsApp(app, provider)
        shop.publish(order_id)
        provider.wait_for(lambda p: p.faults.struck, timeout=20)
        app.host.kill()
        assert len(provider.charges(order_id)) == charged

        with HostProcess(ROOT, environment=app.environment):
            eventually(lambda: provider.charges(order_id), within=30, what="the charge")
            shop.all_settled()
            time.sleep(0.2)  # whatever is still under way at the provider

        assert len(provider.charges(order_id)) == 1
