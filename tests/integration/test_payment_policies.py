"""Every fault of the payment provider under every policy, over HTTP: charged once, never twice.

All cases run side by side, each with an order of its own, so that their waits are one wait. Time runs
faster than the wall's: a lease of 30 s takes four.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import pytest

from local.payments import Faults, PaymentProvider
from shared import payments
from shared.idempotency import (
    Attempt,
    Consumer,
    Delivery,
    DidNotHappen,
    Effects,
    Handled,
    Outcome,
    Policy,
    Quarantine,
    Reconcile,
    Rerun,
    ResultCodec,
    StoreUnavailable,
    TakeoverPolicy,
    TransientFailure,
    downstream_uuid,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.order_events import ORDER_PLACED, OrderEvent
from shared.payments import Receipt, charge_order

pytestmark = pytest.mark.integration

SPEED = 8.0
TIMEOUT = 10.0  # more than a second of the wall's
SETTLE = 20.0
MOST_DELIVERIES = 8
LANDS_AFTER = 0.3  # seconds of the wall's: after its caller has left, before it is settled

type Fault = Callable[[Faults, str], object]


def two_in_turn(faults: Faults, reference: str) -> None:
    faults.fail_after_charging(reference=reference)
    faults.drop_connection_before(reference=reference)


CLEAR: dict[str, Fault] = {
    "none": lambda f, ref: None,
    "slow": lambda f, ref: f.slow(0.05, reference=ref),
    "throttled": lambda f, ref: f.throttle(retry_after=None, reference=ref),
    "busy": lambda f, ref: f.throttle(status=503, retry_after=None, reference=ref),
}
UNCLEAR: dict[str, Fault] = {
    "too slow": lambda f, ref: f.slow(1.7, reference=ref),
    "time-out before": lambda f, ref: f.time_out_before_charging(reference=ref),
    "time-out after": lambda f, ref: f.time_out_after_charging(reference=ref),
    "500 before": lambda f, ref: f.fail_before_charging(reference=ref),
    "500 after": lambda f, ref: f.fail_after_charging(reference=ref),
    "dropped before": lambda f, ref: f.drop_connection_before(reference=ref),
    "dropped after": lambda f, ref: f.drop_connection_after(reference=ref),
    "lands later": lambda f, ref: f.land_later(LANDS_AFTER, reference=ref),
    "two in turn": two_in_turn,
}
FAULTS = {**CLEAR, **UNCLEAR}
POLICIES = ["rerun", "reconcile", "quarantine"]


class QuickClock:
    """Time that runs faster than the wall's."""

    def now(self) -> float:
        return 1_700_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


class Shop:
    """A consumer that charges at a real provider, and the deliveries of one message until it is settled."""

    def __init__(self, provider: PaymentProvider, policy: str) -> None:
        clock = QuickClock()
        self.client = payments.PaymentProvider(provider.url, timeout=TIMEOUT)
        policies: dict[str, TakeoverPolicy] = {
            "rerun": Rerun(provider_key_retention=24 * 3600.0),
            "reconcile": Reconcile(self.client.reconcile),
            "quarantine": Quarantine(),
        }
        self.consumer = Consumer(
            "charge_payment",
            MemoryStore(clock),
            policy=Policy(memory=0.0),
            effects=Effects(policy=policies[policy], settle=SETTLE),
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def charge_until_settled(
        self, reference: str, after_each: Callable[[], object] = lambda: None
    ) -> Handled[Receipt | None]:
        for number in range(1, MOST_DELIVERIES + 1):
            try:
                handled = await self.deliver(reference, number)
            except (TransientFailure, StoreUnavailable):
                handled = None
            after_each()
            if handled is not None and handled.outcome is not Outcome.IN_FLIGHT:
                return handled
        raise AssertionError(f"{reference} was not settled in {MOST_DELIVERIES} deliveries")

    async def deliver(self, reference: str, number: int) -> Handled[Receipt | None]:
        event = placed(reference)
        return await self.consumer.handle(
            Delivery(key=reference, fingerprint="f", redelivered=number > 1),
            lambda: charge_order(event, self.client),
            ResultCodec[Receipt | None](Receipt | None),
        )


def placed(order_id: str, total: str = "12.50") -> OrderEvent:
    return OrderEvent(
        id=f"event-{order_id}",
        source="tests",
        type=ORDER_PLACED,
        subject=order_id,
        time=datetime.now(UTC),
        version=1,
        data={"customer_id": "c-1", "total": total, "currency": "EUR"},
    )


@dataclass
class Cases:
    """What became of each case, and what the provider knows of it."""

    provider: PaymentProvider
    handled: dict[tuple[str, str], Handled[Receipt | None]]


@pytest.fixture(scope="module")
def cases() -> Iterator[Cases]:
    with PaymentProvider() as provider:
        names = [(policy, fault) for policy in POLICIES for fault in FAULTS]
        for policy, fault in names:
            FAULTS[fault](provider.faults, _reference(policy, fault))

        async def run() -> list[Handled[Receipt | None]]:
            async with AsyncExitStack() as open_shops:
                shops = {
                    p: await open_shops.enter_async_context(Shop(provider, p)) for p in POLICIES
                }
                return await asyncio.gather(
                    *(shops[p].charge_until_settled(_reference(p, fault)) for p, fault in names)
                )

        handled = asyncio.run(run())
        time.sleep(LANDS_AFTER)  # whatever is still on its way lands now
        yield Cases(provider, dict(zip(names, handled, strict=True)))


def _reference(policy: str, fault: str) -> str:
    return f"{policy}/{fault}"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("policy", ["rerun", "reconcile"])
def test_whatever_the_provider_does_the_customer_is_charged_once(
    cases: Cases, policy: str, fault: str
) -> None:
    handled = cases.handled[policy, fault]
    [charge] = cases.provider.charges(_reference(policy, fault))
    assert handled.outcome is Outcome.PROCESSED
    assert handled.result is not None
    assert handled.result.charge_id == charge.charge_id


@pytest.mark.parametrize("fault", CLEAR)
def test_under_quarantine_what_is_clear_is_charged_once(cases: Cases, fault: str) -> None:
    assert cases.handled["quarantine", fault].outcome is Outcome.PROCESSED
    assert len(cases.provider.charges(_reference("quarantine", fault))) == 1


@pytest.mark.parametrize("fault", UNCLEAR)
def test_under_quarantine_what_is_not_clear_is_left_to_a_person_with_the_reason(
    cases: Cases, fault: str
) -> None:
    handled = cases.handled["quarantine", fault]
    assert handled.outcome is Outcome.QUARANTINED
    assert "charge" in handled.description
    assert len(cases.provider.charges(_reference("quarantine", fault))) <= 1


def test_nobody_was_charged_twice(cases: Cases) -> None:
    assert cases.provider.charged_twice() == ()


def test_every_fault_has_struck(cases: Cases) -> None:
    """A fault that never came about would prove nothing."""
    assert cases.provider.faults.struck.keys() == {
        "slow",
        "throttle",
        "time_out_before_charging",
        "time_out_after_charging",
        "fail_before_charging",
        "fail_after_charging",
        "drop_connection_before",
        "drop_connection_after",
        "land_later",
    }


@pytest.mark.parametrize(("policy", "charges"), [("rerun", 2), ("reconcile", 1)])
async def test_a_provider_that_forgets_keys_early_doubles_a_rerun_and_reconcile_saves_it(
    policy: str, charges: int
) -> None:
    """Rerun trusts the stated retention; a provider that breaks its word is out of its reach."""
    with PaymentProvider() as provider:
        provider.faults.fail_after_charging(reference="o-1")
        async with Shop(provider, policy) as shop:
            await shop.charge_until_settled("o-1", provider.forget_keys)
        assert len(provider.charges("o-1")) == charges


async def test_settle_must_cover_how_late_a_call_can_land_where_keys_are_not_honoured() -> None:
    """The limit of asking: a call that lands after `settle` was not there when it was asked for."""
    with PaymentProvider() as provider:
        too_late = (SETTLE + 10) / SPEED
        provider.faults.land_later(too_late, reference="o-1")
        async with Shop(provider, "reconcile") as shop:
            await shop.charge_until_settled("o-1")
        provider.forget_keys()
        provider.wait_for(lambda p: len(p.charges("o-1")) == 2, timeout=5)


async def test_an_outage_charges_nobody_and_is_over_when_it_is_over() -> None:
    with PaymentProvider() as provider:
        provider.faults.outage(retry_after=3)
        async with Shop(provider, "reconcile") as shop:
            for number in (1, 2):
                with pytest.raises(TransientFailure) as refused:
                    await shop.deliver("o-1", number)
                assert refused.value.retry_after == 3
            provider.faults.outage(on=False)
            assert (await shop.deliver("o-1", 3)).attempt == 1  # nothing was left behind
        assert len(provider.ledger) == 1


async def test_a_provider_that_cannot_be_reached_was_surely_not_called() -> None:
    provider = PaymentProvider()
    with provider:
        pass  # it has a port by now, and frees it
    async with Shop(provider, "quarantine") as shop:
        with pytest.raises(TransientFailure, match="reached"):
            await shop.deliver("o-1", 1)
        with provider:
            assert (await shop.deliver("o-1", 2)).outcome is Outcome.PROCESSED
    assert len(provider.ledger) == 1


async def test_a_declined_card_is_refused_for_good_and_every_duplicate_is_told_so() -> None:
    with PaymentProvider() as provider:
        provider.decline("o-1")
        async with Shop(provider, "quarantine") as shop:
            first, again = await shop.deliver("o-1", 1), await shop.deliver("o-1", 2)
    assert (first.outcome, first.reason) == (Outcome.FAILED, "CardDeclined")
    assert (again.outcome, again.failed) == (Outcome.DUPLICATE, True)
    assert again.reason == "CardDeclined"


async def test_the_key_at_the_provider_is_the_attempts_downstream_key() -> None:
    with PaymentProvider() as provider:
        async with Shop(provider, "rerun") as shop:
            await shop.deliver("o-1", 1)
        [charge] = provider.ledger
        assert charge.key == str(downstream_uuid("charge_payment", "o-1", "charge"))


async def test_a_charge_that_was_never_made_did_not_happen() -> None:
    attempt = Attempt(consumer="c", key="k", number=2, owner="o", deadline=0.0)
    with PaymentProvider() as provider:
        async with Shop(provider, "reconcile") as shop:
            assert await shop.client.reconcile("k", "charge", attempt) == DidNotHappen()
