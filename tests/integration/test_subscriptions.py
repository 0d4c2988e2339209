"""One event, several subscribers: each does its part once, and none keeps another from doing it."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bootstrap import build
from local.mail import MailCatcher
from local.payments import PaymentProvider
from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from shared import clients
from shared.idempotency.keys import joined, storage_id
from shared.loyalty import ACCOUNT
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import dead_letter, eventually
from tests.integration.test_charge_payment import QUICK

pytestmark = pytest.mark.integration
TOPIC = "order-events"
SUBSCRIPTIONS = ("email", "loyalty", "payments", "audit")


class Shop:
    """The running app and both providers."""

    def __init__(self, app: RunningApp, mails: MailCatcher, payments: PaymentProvider) -> None:
        self.app = app
        self.mails = mails
        self.payments = payments

    def publish(self, *messages: ServiceBusMessage) -> None:
        """Publish messages, in one batch of the SDK's."""
        with (
            ServiceBusClient.from_connection_string(self.app.broker.connection_string) as bus,
            bus.get_topic_sender(TOPIC) as sender,
        ):
            sender.send_messages(list(messages))

    def all_settled(self) -> None:
        """Wait until no subscription holds a message."""

        def settled() -> bool:
            counts = [self.app.broker.counts(f"{TOPIC}/subscriptions/{s}") for s in SUBSCRIPTIONS]
            return all(each.active == each.locked == 0 for each in counts)

        eventually(settled, within=60, what=f"{', '.join(SUBSCRIPTIONS)} are empty")

    def ledger(self, partition: str, id_: str) -> dict[str, Any] | None:
        """A document of the app's ledgers, as its own store reads it."""

        async def read() -> dict[str, Any] | None:
            clients.cosmos.cache_clear()  # its connections belong to the loop that made them
            stores = build(self.app.environment).stores
            try:
                found = await stores.ledgers.read(partition, id_)
            finally:
                await stores.ledgers.close()
            return None if found is None else dict(found.document)

        return asyncio.run(read())

    def audited(self, event_id: str) -> bool:
        key = joined("tests", event_id)
        return self.ledger(key, storage_id(key)) is not None

    def handled(self, consumer: str, outcome: str, key: str) -> int:
        told = f"{consumer} {key!r}: {outcome}"
        return sum(told in line for line in self.app.host.output.splitlines())


@pytest.fixture(scope="module", params=["table", "cosmos"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    providers = MailCatcher(), PaymentProvider()
    with providers[0] as mails, providers[1] as payments:
        urls = {"MAIL_PROVIDER_URL": mails.url, "PAYMENT_PROVIDER_URL": payments.url}
        with running_app(azurite, cosmos, **urls, **QUICK) as app:
            yield Shop(app, mails, payments)


def event(order_id: str, customer: str, *, total: str = "12.50") -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"event-{order_id}",
        "source": "tests",
        "type": "OrderPlaced",
        "subject": order_id,
        "time": "2026-01-01T00:00:00Z",
        "version": 1,
        "data": {"customer_id": customer, "total": total, "currency": "EUR"},
    }


def message(content: dict[str, Any], *, again: bool = False) -> ServiceBusMessage:
    """A message about an event; ``again``: under another MessageId, and the same Deduplication-Key."""
    sent = ServiceBusMessage(json.dumps(content), session_id=content["subject"])
    sent.message_id = uuid.uuid4().hex if again else content["id"]
    sent.application_properties = {"Deduplication-Key": content["id"]}
    return sent


def own(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def test_given_events_told_again_and_again_then_each_subscriber_does_its_part_once(
    shop: Shop,
) -> None:
    customer, orders = own("cust"), [own("ord") for _ in range(3)]
    events = [event(order_id, customer) for order_id in orders]
    shop.mails.drop_answers = 1  # one mail is in doubt, and sent again under its key

    for again in (False, True, True):
        shop.publish(*(message(each, again=again) for each in events))
    shop.all_settled()

    mails = [mail for mail in shop.mails.mails if mail.to == customer]
    assert sorted(mail.text.split()[-1].rstrip(".") for mail in mails) == sorted(orders)
    assert [len(shop.payments.charges(order_id)) for order_id in orders] == [1, 1, 1]
    account = shop.ledger(customer, ACCOUNT)
    assert account is not None
    assert account["points"] == 36
    assert [shop.audited(each["id"]) for each in events] == [True] * 3
    dead = [shop.app.broker.counts(f"{TOPIC}/subscriptions/{s}").dead for s in SUBSCRIPTIONS]
    assert dead == [0] * len(SUBSCRIPTIONS)


def test_given_a_batch_in_which_one_has_no_id_and_some_are_poison_then_the_others_are_audited_once(
    shop: Shop,
) -> None:
    """The host's array of ids is one short then: read from it, keys would belong to other bodies.

    An empty body, or one that is no JSON, would fail all of the batch in the host, were its bodies not
    asked for as bytes.
    """
    customer = own("cust")
    events = [event(own("ord"), customer) for _ in range(6)]
    messages = [message(each) for each in events]
    messages[1].message_id = None
    messages[1].application_properties = {}
    poison = ServiceBusMessage(b"{no json", message_id=own("poison"), session_id="poison")
    empty = ServiceBusMessage(b"", message_id=own("empty"), session_id="poison")
    no_text = ServiceBusMessage(b"\xff\xfe{}", message_id=own("no-text"), session_id="poison")
    bad = [poison, empty, no_text]

    shop.publish(*messages[:3], *bad, *messages[3:], message(events[5], again=True))
    shop.all_settled()

    assert [shop.audited(each["id"]) for each in events] == [True] * 6
    keys = [joined("tests", each["id"]) for each in events]
    assert [shop.handled("audit_orders", "processed", key) for key in keys] == [1] * 6
    # more often where this machine is so slow that locks end first
    assert shop.handled("audit_orders", "duplicate", keys[5]) >= 1
    reasons = {b"{no json": "MalformedJson", b"": "EmptyBody", b"\xff\xfe{}": "MalformedJson"}
    for body, reason in reasons.items():
        letter = dead_letter(
            shop.app.broker,
            f"{TOPIC}/subscriptions/audit",
            lambda m, body=body: m.body == body,  # type: ignore[misc]
        )
        assert letter.reason == reason
    batches = [
        line for line in shop.app.host.output.splitlines() if "'Functions.audit_orders'" in line
    ]
    assert len(batches) < 2 * len(messages), "they came in batches"
