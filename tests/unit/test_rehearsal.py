"""The test kit finds what is wrong with a handler; and this app's handlers are put through it."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest

from shared.idempotency import (
    Consumer,
    Delivery,
    Effects,
    Quarantine,
    Reconcile,
    Rerun,
    TakeoverPolicy,
    current_attempt,
)
from shared.idempotency.rehearsal import Process, Report, rehearse
from shared.payments import Receipt

type Work = Callable[[], Awaitable[Any]]

DELIVERY = Delivery(key="order-1", fingerprint="f")
RECEIPT = Receipt(charge_id="ch_1", amount=Decimal("12.50"), currency="EUR")
POLICIES: dict[str, Callable[[Process], TakeoverPolicy]] = {
    "rerun": lambda process: Rerun(provider_key_retention=1e9),
    "reconcile": lambda process: Reconcile(process.ask),
    "quarantine": lambda process: Quarantine(),
}


def consumer(policy: str | None) -> Callable[[Process], Consumer]:
    def made(process: Process) -> Consumer:
        effects = Effects(policy=POLICIES[policy](process)) if policy else None
        return Consumer("charge_payment", process.store, effects=effects, clock=process.clock)

    return made


def two_steps(process: Process) -> Work:
    charge, notify = process.effect("charge", "r-1"), process.effect("notify")

    async def work() -> str:
        step = current_attempt().step
        receipt: str = await step("charge", charge, deadline=5)
        await step("notify", notify, deadline=5, last=True)
        return receipt

    return work


def bare(process: Process) -> Work:
    return process.effect("charge", "r-1")


async def rehearsed(
    handler: Callable[[Process], Work], policy: str | None, *effects: str, **options: Any
) -> Report:
    return await rehearse(consumer(policy), handler, DELIVERY, effects=effects, **options)


# -- what it finds


async def test_it_finds_the_effect_that_a_crash_doubles_and_shows_how_it_came_about() -> None:
    report = await rehearsed(bare, None, "charge")
    assert not report.ok
    crash = next(f for f in report.findings if f.play.startswith("dies after call 1"))
    assert crash.problem == "effect 'charge' happened 2 times"
    told = str(crash)
    assert "effect charge" in told
    assert "DIES after call 1" in told
    assert "is handed the message, redelivered" in told


async def test_it_finds_a_rerun_at_a_service_that_honours_no_key() -> None:
    report = await rehearsed(two_steps, "rerun", "charge", "notify", honours_keys=False)
    assert {f.problem for f in report.findings} == {
        "effect 'charge' happened 2 times",
        "effect 'notify' happened 2 times",
    }


async def test_it_finds_an_effect_that_never_happens() -> None:
    def swallows(process: Process) -> Work:
        charge = process.effect("charge")

        async def work() -> str:
            try:
                await charge()
            except TimeoutError:
                return "never mind"
            return "paid"

        return work

    report = await rehearsed(swallows, None, "charge")
    assert "effect 'charge' never happened" in {f.problem for f in report.findings}


async def test_it_finds_a_settle_that_a_late_call_outlasts() -> None:
    report = await rehearsed(two_steps, "reconcile", "charge", "notify", late=90.0)
    assert [f.play for f in report.findings] == [
        "call 1 (effect charge) is late",
        "call 3 (effect notify) is late",
    ]


async def test_it_finds_a_message_that_is_never_settled() -> None:
    def fails(process: Process) -> Work:
        async def work() -> str:
            raise RuntimeError

        return work

    report = await rehearsed(fails, "rerun")
    assert any("never settled" in f.problem for f in report.findings)


# -- what is right


@pytest.mark.parametrize(
    ("policy", "honours_keys"), [("rerun", True), ("reconcile", True), ("reconcile", False)]
)
async def test_steps_have_their_effects_once_whatever_goes_wrong(
    policy: str, honours_keys: bool
) -> None:
    report = await rehearsed(two_steps, policy, "charge", "notify", honours_keys=honours_keys)
    assert report.ok, report
    assert report.plays > 15
    assert report.quarantined == ()


@pytest.mark.slow
async def test_two_crashes_in_one_delivery_change_nothing() -> None:
    report = await rehearsed(two_steps, "reconcile", "charge", "notify", crashes=2)
    assert report.ok, report
    assert report.plays > 100


async def test_quarantine_doubles_nothing_and_says_where_a_person_is_needed() -> None:
    report = await rehearsed(two_steps, "quarantine", "charge", "notify")
    assert report.ok, report
    assert "dies after call 1 (effect charge)" in report.quarantined
    assert "the message comes twice" not in report.quarantined
