"""payment_webhook: whatever is interrupted, a repetition leads to a paid order and its fulfilment."""

import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions import HttpResponse

from blueprints import webhooks
from blueprints.webhooks import PaymentWebhook, register_webhook
from bootstrap import build
from shared.idempotency import (
    Consumer,
    Delivery,
    Inbox,
    Outcome,
    ResultCodec,
    TransientFailure,
    VersionGuard,
    current_unit,
)
from shared.idempotency.entities import EntityStates
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.triggers.standard_webhooks import StandardWebhooks
from shared.orders import parsed
from shared.webhooks import PaymentEvent
from tests.triggers.http_route import PATIENT, problem_of
from tests.triggers.webhook_sender import a_secret, signed

ORDER = {"order_id": "o-1", "total": "9.80", "currency": "EUR", "status": "placed"}


def event(kind: str = "succeeded", version: int = 1, **changes: Any) -> bytes:
    data = {"charge_id": "ch-1", "reference": "o-1", "amount": "9.8", "currency": "EUR"}
    told = {**data, "version": version, **changes}
    content = {"type": f"charge.{kind}", "timestamp": "2024-05-01T12:00:00Z", "data": told}
    return json.dumps(content).encode()


class Shop:
    """The app's own function over stores in memory; ``sent`` are the orders to be fulfilled."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.send_errors: list[Exception] = []
        self.orders = MemoryInbox()
        self.order_payment = VersionGuard("order_payment", EntityStates(self.orders))
        consumer = Consumer("payment_webhook", MemoryStore(), policy=PATIENT)
        verifier = StandardWebhooks([a_secret()])
        webhook = PaymentWebhook(verifier, consumer, self.order_payment, self._send)
        app = func.FunctionApp()
        register_webhook(app, webhook)
        [function] = app.get_functions()
        self.function = function.get_user_function()

    async def place(self) -> None:
        async def make() -> None:
            current_unit().mark(ORDER)

        inbox = Inbox("process_order", self.orders, entity_is_marker=True)
        codec: ResultCodec[None] = ResultCodec(type(None))
        await inbox.handle(Delivery(key="o-1"), make, codec)

    async def receive(self, body: bytes, event_id: str = "msg-1") -> HttpResponse:
        answer = await self.function(signed(body, event_id))
        assert isinstance(answer, HttpResponse)
        return answer

    @property
    def payment_status(self) -> str | None:
        status = self.orders.documents()["o-1", "o-1"].get("payment_status")
        return None if status is None else str(status)

    async def _send(self, order_id: str) -> None:
        if self.send_errors:
            raise self.send_errors.pop(0)
        self.sent.append(order_id)


@pytest.fixture
async def shop() -> Shop:
    shop = Shop()
    await shop.place()
    return shop


async def test_given_the_send_fails_when_the_webhook_is_repeated_then_it_is_sent(
    shop: Shop,
) -> None:
    shop.send_errors = [TransientFailure("the broker is down")]

    first = await shop.receive(event())
    assert (problem_of(first), shop.payment_status, shop.sent) == ((503, "try-again"), "paid", [])

    assert (await shop.receive(event())).status_code == 204
    assert shop.sent == ["o-1"]


async def test_given_the_process_died_before_the_send_when_the_webhook_is_repeated_then_it_is_sent(
    shop: Shop,
) -> None:
    change = parsed(event(), PaymentEvent).change()
    assert change is not None
    assert await shop.order_payment.apply(change.state()) is Outcome.PROCESSED  # and then it died

    assert (await shop.receive(event())).status_code == 204
    assert shop.sent == ["o-1"]


async def test_given_a_webhook_that_was_done_when_it_is_repeated_then_nothing_is_sent_again(
    shop: Shop,
) -> None:
    await shop.receive(event())
    await shop.receive(event())
    assert shop.sent == ["o-1"]


@pytest.mark.parametrize(("kind", "status"), [("failed", "failed"), ("refunded", "refunded")])
async def test_given_a_charge_that_is_not_paid_when_it_is_told_then_nothing_is_fulfilled(
    shop: Shop, kind: str, status: str
) -> None:
    assert (await shop.receive(event(kind, amount="1"))).status_code == 204
    assert (shop.payment_status, shop.sent) == (status, [])


async def test_given_a_paid_order_that_was_refunded_when_the_older_event_comes_then_it_stays_so(
    shop: Shop,
) -> None:
    await shop.receive(event("refunded", 2), "msg-2")
    assert (await shop.receive(event("succeeded", 1), "msg-1")).status_code == 204
    assert (shop.payment_status, shop.sent) == ("refunded", [])


@pytest.mark.parametrize("changes", [{"amount": "9.81"}, {"currency": "USD"}])
async def test_given_a_charge_that_is_not_the_order_s_when_it_succeeds_then_it_is_not_paid(
    shop: Shop, changes: dict[str, Any]
) -> None:
    assert problem_of(await shop.receive(event(**changes))) == (422, "refused")
    assert (shop.payment_status, shop.sent) == (None, [])


async def test_given_no_secret_or_no_service_bus_when_the_app_starts_then_there_is_no_webhook() -> (
    None
):
    parts = build({"AzureWebJobsStorage": "UseDevelopmentStorage=true"})
    app = func.FunctionApp()
    webhooks.register(app, parts)
    assert not parts.settings.takes_webhooks
    assert app.get_functions() == []
