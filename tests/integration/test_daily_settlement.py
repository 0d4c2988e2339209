"""A day is settled once through the whole app: scan, steps, a provider that fails, a process that dies."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from local.host.process import HostProcess
from local.payments import Faults, PaymentProvider
from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from shared import clients, storage
from shared.idempotency.events import ignore
from shared.idempotency.inbox_store import Operation
from shared.idempotency.keys import storage_id
from shared.orders import Line, Order
from shared.settings import Settings
from shared.webhooks import Charge, PaymentChange
from tests.integration.conftest import ROOT, RunningApp, running_app
from tests.integration.messages import eventually

pytestmark = pytest.mark.integration
JOB = "daily_settlement"
SETTINGS = {
    "IDEMPOTENCY_LEASE_SECONDS": "6",
    "IDEMPOTENCY_HEARTBEAT_SECONDS": "2",
    "IDEMPOTENCY_WAIT_SECONDS": "12",
    "IDEMPOTENCY_DEADLINE_SECONDS": "100",
    "PAYMENT_TIMEOUT_SECONDS": "3",
    "PAYMENT_SETTLE_SECONDS": "3",
}
PATIENCE = 60.0


class Shop:
    """The running app, the provider that it settles with, and the orders that it finds."""

    def __init__(self, app: RunningApp, provider: PaymentProvider) -> None:
        self.app = app
        self.provider = provider

    def paid(self, at: datetime, **totals: str) -> None:
        """Put an order for each amount into the store, as it is once its webhook has come."""
        asyncio.run(self._put([_order(currency, total) for currency, total in totals.items()], at))

    def unpaid(self, currency: str, total: str) -> None:
        asyncio.run(self._put([_order(currency, total)], None))

    async def _put(self, orders: list[Order], paid_at: datetime | None) -> None:
        # the stores of the app itself, over its own settings
        clients.cosmos.cache_clear()  # a client is of one loop
        store = storage.stores(Settings.read(self.app.environment), ignore).orders
        for order in orders:
            document = order.document()
            if paid_at is not None:
                document = _payment(order, paid_at).state().following(document)
            operation = Operation(kind="create", id=storage_id(order.order_id), document=document)
            assert await store.commit(order.order_id, (operation,)) is None
        await store.close()

    def run(self, host: HostProcess | None = None) -> None:
        """Run the timer out of turn, as one does at the host's administrative address."""
        address = f"{(host or self.app.host).base_url}/admin/functions/{JOB}"
        assert self.app.http.post(address, json={}).status_code == 202

    def settled(self, reference: str) -> list[dict[str, Decimal]]:
        return [each.amounts for each in self.provider.settlements if each.reference == reference]

    def closed(self, day: date) -> bool:
        return bool(self.settled(str(day)))


def _order(currency: str, total: str) -> Order:
    line = Line(sku="sku-1", quantity=1, unit_price=Decimal(total))
    return Order(
        order_id=f"ord-{uuid.uuid4().hex}", customer_id="c-1", currency=currency, lines=(line,)
    )


def _payment(order: Order, at: datetime) -> PaymentChange:
    charge = Charge(
        charge_id="ch-1",
        reference=order.order_id,
        amount=order.total(),
        currency=order.currency,
        version=1,
    )
    return PaymentChange(status="paid", at=at, charge=charge)


@pytest.fixture(params=["table", pytest.param("cosmos", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    with (
        PaymentProvider() as provider,
        running_app(azurite, cosmos, PAYMENT_PROVIDER_URL=provider.url, **SETTINGS) as app,
    ):
        yield Shop(app, provider)


def last_day() -> date:
    """The day that the last slot, at two o'clock, settles."""
    return (datetime.now(UTC) - timedelta(hours=2)).date() - timedelta(days=1)


def on(day: date, hour: int = 12) -> datetime:
    return datetime.combine(day, time(hour), UTC)


def test_given_paid_orders_when_the_timer_runs_twice_then_each_day_is_settled_once_by_currency(
    shop: Shop,
) -> None:
    day = last_day()
    east = datetime.fromisoformat(f"{day + timedelta(days=1)}T00:30:00+02:00")
    shop.paid(on(day), EUR="12.50", USD="7.00", JPY="900")
    shop.paid(on(day, 0), EUR="0.75")
    shop.paid(east, EUR="1")  # by UTC it is still that day
    shop.paid(on(day - timedelta(days=1)), EUR="100")
    shop.paid(on(day + timedelta(days=1)), EUR="1000")
    shop.unpaid("EUR", "10000")

    for _ in range(2):
        shop.run()
    eventually(lambda: shop.closed(day), within=PATIENCE, what="the day is closed")
    eventually(
        lambda: shop.app.host.output.count("Executed 'Functions.daily_settlement'") == 2,
        within=PATIENCE,
        what="both runs are over",
    )

    assert shop.settled(f"{day}/EUR") == [{"EUR": Decimal("14.25")}]
    assert shop.settled(f"{day}/USD") == [{"USD": Decimal("7.00")}]
    assert shop.settled(f"{day}/JPY") == [{"JPY": Decimal(900)}]
    everything = {"EUR": Decimal("14.25"), "JPY": Decimal(900), "USD": Decimal("7.00")}
    assert shop.settled(str(day)) == [everything]
    assert shop.settled(f"{day - timedelta(days=1)}/EUR") == [{"EUR": Decimal(100)}]
    references = [each.reference for each in shop.provider.settlements]
    assert len(references) == len(set(references))
    assert str(day - timedelta(days=7)) in references, "the days before are made up for"
    assert "(Failed," not in shop.app.host.output


LOST: list[tuple[str, Callable[[Faults, str], None], int]] = [
    ("it is noted", lambda faults, of: faults.slow(0.5, reference=of), 1),
    ("it is lost", lambda faults, of: faults.time_out_before_charging(reference=of), 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "calls"), [each[1:] for each in LOST], ids=[x[0] for x in LOST])
def test_given_the_process_is_killed_in_the_middle_then_it_goes_on_from_the_recorded_steps(
    shop: Shop, fault: Callable[[Faults, str], None], calls: int
) -> None:
    day = last_day()
    shop.paid(on(day), EUR="12.50", GBP="3", USD="7")
    fault(shop.provider.faults, f"{day}/GBP")
    shop.run()
    shop.provider.wait_for(lambda provider: provider.faults.struck, timeout=PATIENCE)
    shop.app.host.kill()
    shop.paid(on(day), EUR="1000", SEK="5")  # its webhook came too late

    with HostProcess(ROOT, environment=shop.app.environment) as restarted:
        shop.run(restarted)
        eventually(lambda: shop.closed(day), within=PATIENCE, what="the day is closed")

    met = shop.provider.faults.met
    assert [met[f"{day}/{currency}"] for currency in ("EUR", "GBP", "USD", "SEK")] == [
        1,
        calls,
        1,
        0,
    ]
    assert met[str(day)] == 1
    everything = {"EUR": Decimal("12.50"), "GBP": Decimal(3), "USD": Decimal(7)}
    assert shop.settled(str(day)) == [everything], "what was totalled first is what is closed with"
    for currency, total in everything.items():
        assert shop.settled(f"{day}/{currency}") == [{currency: total}]


def test_given_no_provider_then_there_is_no_such_function(azurite: Azurite) -> None:
    with running_app(azurite) as app:
        address = f"{app.host.base_url}/admin/functions/{JOB}"
        assert app.http.post(address, json={}).status_code == 404
