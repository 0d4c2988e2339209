"""The demo's account sees every order that is lost or doubled, and every message it cannot place."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from local.demo.accounts import drawn_up
from local.demo.consumers import Handling, Logs
from local.demo.events import Events, with_witness
from local.demo.evidence import Evidence
from local.demo.ledger import Ledger
from local.demo.payments import Payments
from local.demo.scenario import Outcome
from local.demo.telemetry import Telemetry
from local.demo.traffic import Origin, PlannedOrder, Traffic
from local.introduction import ENTITIES
from local.servicebus import Counts, Entities, Snapshot
from shared.order_events import ORDER_FULFILLED, ORDER_PLACED, OrderEvent

TRAFFIC = Traffic.planned(20, seed=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DROPPED = len(TRAFFIC.of(Origin.RESENT_IN_WINDOW))
RESENT = TRAFFIC.of(
    Origin.RESENT_LATER, Origin.RESENT_NEW_ID, Origin.OTHER_TRANSPORT, Origin.TWO_AT_ONCE
)
REDELIVERED = TRAFFIC.of(Origin.ACKNOWLEDGEMENT_LOST, Origin.LOCK_EXPIRED, Origin.CONSUMER_KILLED)
REUSED = TRAFFIC.of(Origin.ID_REUSED)
THROUGH_STORAGE = len(TRAFFIC.of(Origin.OTHER_TRANSPORT))
SENT = 20 + DROPPED + len(RESENT) - THROUGH_STORAGE + len(REUSED) + len(TRAFFIC.malformed)


def handling(planned: PlannedOrder, outcome: str, cause: str | None = None) -> Handling:
    return Handling("consumer 1", NOW, planned.id, outcome, cause)


HANDLINGS = (
    *(handling(planned, "processed") for planned in TRAFFIC.orders),
    *(handling(planned, "duplicate", "resend") for planned in RESENT),
    *(handling(planned, "duplicate", "redelivery") for planned in REDELIVERED),
    *(handling(planned, "mismatch") for planned in REUSED),
    Handling("consumer 1", NOW, "bad-schema", "fault", None),
)
FROM_SERVICE_BUS = SENT - DROPPED + len(REDELIVERED)


def dead_letter(message_id: str | None, reason: str) -> Snapshot:
    return Snapshot(message_id, b"", 1, 0, reason, "this is why", {})


FLAWLESS = Evidence(
    protected=True,
    traffic=TRAFFIC,
    outcome=Outcome(
        sent=SENT,
        sent_through_storage_queue=THROUGH_STORAGE,
        http_repeats=1,
        replayed=1,
        steady_messages=10,
        steady_seconds=2.0,
        killed=1,
        held_by_killed=4,
    ),
    broker=Counts(
        sent=SENT,
        dropped_by_detection=DROPPED,
        delivered=FROM_SERVICE_BUS,
        locks_expired=len(REDELIVERED),
    ),
    dead_letters=(
        *(dead_letter(each.message.message_id, each.reason) for each in TRAFFIC.malformed),
        *(dead_letter(planned.id, "PayloadMismatch") for planned in REUSED),
    ),
    poison_messages=0,
    ledger=Ledger(
        effects=Counter(planned.id for planned in TRAFFIC.orders),
        contents={
            planned.id: (planned.order.customer_id, str(planned.order.total()))
            for planned in TRAFFIC.orders
        },
        fulfilments=Counter(planned.id for planned in TRAFFIC.orders),
    ),
    events=Events(
        told={
            ORDER_PLACED: Counter(planned.id for planned in TRAFFIC.orders),
            ORDER_FULFILLED: Counter(planned.id for planned in TRAFFIC.orders),
        },
        repeats=2,
        fulfilments=Counter(planned.id for planned in TRAFFIC.orders),
    ),
    logs=Logs(
        handlings=HANDLINGS,
        from_service_bus=FROM_SERVICE_BUS,
        from_storage_queue=THROUGH_STORAGE,
        failed=0,
        of_killed=2,
    ),
    payments=Payments(
        charges=Counter(planned.id for planned in TRAFFIC.orders), struck={"throttle": 1}, dead=0
    ),
    telemetry=Telemetry(
        handled=len(HANDLINGS) - 1, redelivered=6, resent=5, refused_commits=5, store_share=0.5
    ),
)
FIRST = TRAFFIC.orders[0].id


def test_a_flawless_run_adds_up_and_has_no_problem() -> None:
    accounts = drawn_up(FLAWLESS)

    assert accounts.problems == ()
    assert accounts.delivered == (
        accounts.effects
        + accounts.duplicates
        + accounts.mismatches
        + accounts.rejected
        + accounts.given_back
    )
    assert accounts.duplicates == accounts.resent + accounts.redelivered
    assert accounts.machine_line == (
        f"processed: 20, duplicates: {len(RESENT) + len(REDELIVERED)}, mismatches: {len(REUSED)},"
        " lost: 0, doubled: 0, charged: 20, charged_twice: 0"
    )


def test_an_order_without_an_effect_is_lost() -> None:
    effects = Counter(FLAWLESS.ledger.effects)
    del effects[FIRST]

    accounts = drawn_up(replace(FLAWLESS, ledger=replace(FLAWLESS.ledger, effects=effects)))

    assert accounts.lost == 1
    assert f"lost: {FIRST}" in accounts.problems


def test_an_order_with_two_effects_is_doubled() -> None:
    effects = FLAWLESS.ledger.effects + Counter([FIRST])

    accounts = drawn_up(replace(FLAWLESS, ledger=replace(FLAWLESS.ledger, effects=effects)))

    assert accounts.doubled == 1
    assert f"doubled: {FIRST}" in accounts.problems


def test_an_effect_of_a_message_that_nobody_can_use_is_a_problem() -> None:
    effects = FLAWLESS.ledger.effects + Counter(["ord-without-message-id"])

    problems = drawn_up(
        replace(FLAWLESS, ledger=replace(FLAWLESS.ledger, effects=effects))
    ).problems

    assert "effects of orders that should have been refused: ord-without-message-id" in problems


def test_an_order_whose_content_was_replaced_is_a_problem() -> None:
    contents = {**FLAWLESS.ledger.contents, FIRST: ("somebody-else", "1.00")}

    accounts = drawn_up(replace(FLAWLESS, ledger=replace(FLAWLESS.ledger, contents=contents)))

    assert accounts.overwritten == 1
    assert f"not the content that came first: {FIRST}" in accounts.problems


@pytest.mark.parametrize(
    ("part", "changes", "complaint"),
    [
        ("broker", {"sent": SENT + 1}, "the broker has seen"),
        ("broker", {"dropped_by_detection": DROPPED + 1}, "the broker dropped"),
        ("broker", {"delivered": FROM_SERVICE_BUS + 1}, "have no outcome in any log"),
        ("logs", {"from_service_bus": FROM_SERVICE_BUS - 1}, "the consumers log"),
        ("logs", {"handlings": HANDLINGS[1:]}, "effects, the store holds"),
        ("outcome", {"replayed": 0}, "answered as repeats"),
        ("telemetry", {"handled": len(HANDLINGS)}, "telemetry has"),
        ("telemetry", {"handled": len(HANDLINGS) - 4}, "telemetry has"),
    ],
)
def test_numbers_that_contradict_each_other_are_a_problem(
    part: str, changes: dict[str, Any], complaint: str
) -> None:
    evidence = replace(FLAWLESS, **{part: replace(getattr(FLAWLESS, part), **changes)})

    assert any(complaint in problem for problem in drawn_up(evidence).problems)


@pytest.mark.parametrize(
    ("charged", "complaint"),
    [
        (Counter({FIRST: 1}), f"charged twice: {FIRST}"),
        (Counter({"ord-unknown": 1}), "charged for orders that were never placed: ord-unknown"),
        (Counter({FIRST: -1}), f"not charged: {FIRST}"),
    ],
)
def test_a_charge_too_many_or_too_few_is_a_problem(charged: Counter[str], complaint: str) -> None:
    charges = Counter(FLAWLESS.payments.charges)
    charges.update(charged)
    payments = replace(FLAWLESS.payments, charges=+charges)

    assert complaint in drawn_up(replace(FLAWLESS, payments=payments)).problems


def test_an_order_event_among_the_dead_letters_is_a_problem() -> None:
    payments = replace(FLAWLESS.payments, dead=1)

    assert drawn_up(replace(FLAWLESS, payments=payments)).problems


def test_a_delivery_that_was_given_back_unread_is_no_problem() -> None:
    broker = replace(FLAWLESS.broker, delivered=FROM_SERVICE_BUS + 1, released=1)

    assert drawn_up(replace(FLAWLESS, broker=broker)).problems == ()


def test_telemetry_that_died_with_the_killed_consumer_is_told_and_no_problem() -> None:
    telemetry = replace(FLAWLESS.telemetry, handled=len(HANDLINGS) - 3)

    accounts = drawn_up(replace(FLAWLESS, telemetry=telemetry))

    assert accounts.telemetry_missing == 2
    assert accounts.problems == ()


def test_a_dead_letter_too_few_and_one_too_many_are_problems() -> None:
    letters = (*FLAWLESS.dead_letters[1:], dead_letter(FIRST, "MaxDeliveryCountExceeded"))

    problems = drawn_up(replace(FLAWLESS, dead_letters=letters)).problems

    assert "dead letters that are missing: None: MissingKey" in problems
    assert f"dead letters that should not be: {FIRST}: MaxDeliveryCountExceeded" in problems


def test_a_message_in_the_poison_queue_is_a_problem() -> None:
    assert drawn_up(replace(FLAWLESS, poison_messages=1)).problems


def test_without_protection_doubled_effects_are_counted_and_no_problem() -> None:
    effects = FLAWLESS.ledger.effects + Counter([FIRST])
    ledger = replace(FLAWLESS.ledger, effects=effects)

    accounts = drawn_up(replace(FLAWLESS, protected=False, ledger=ledger))

    assert accounts.doubled == 1
    assert accounts.problems == ()


def test_each_origin_shows_what_its_repeats_did() -> None:
    rows = {row.origin: row for row in drawn_up(FLAWLESS).origins}

    dropped = rows[Origin.RESENT_IN_WINDOW.value]
    assert (dropped.resent, dropped.came_again, dropped.doubled) == (DROPPED, 0, 0)
    killed = rows[Origin.CONSUMER_KILLED.value]
    assert (killed.resent, killed.came_again, killed.doubled) == (0, killed.orders, 0)


EVENTS = FLAWLESS.events


@pytest.mark.parametrize(
    ("flawed", "problem"),
    [
        (replace(EVENTS, fulfilments=EVENTS.fulfilments - Counter([FIRST])), "not fulfilled"),
        (replace(EVENTS, fulfilments=EVENTS.fulfilments + Counter([FIRST])), "fulfilled too often"),
        (
            replace(EVENTS, told={**EVENTS.told, ORDER_PLACED: EVENTS.placed - Counter([FIRST])}),
            "not told OrderPlaced",
        ),
        (
            replace(EVENTS, told={**EVENTS.told, ORDER_PLACED: EVENTS.placed + Counter([FIRST])}),
            "told OrderPlaced too often",
        ),
        (
            replace(
                EVENTS, told={**EVENTS.told, ORDER_FULFILLED: EVENTS.fulfilled - Counter([FIRST])}
            ),
            "not told OrderFulfilled",
        ),
    ],
)
def test_an_event_or_a_fulfilment_that_is_missing_or_doubled_is_a_problem(
    flawed: Events, problem: str
) -> None:
    assert drawn_up(replace(FLAWLESS, events=flawed)).problems == (f"{problem}: {FIRST}",)


def test_an_event_sent_again_is_one_by_its_message_id() -> None:
    event = OrderEvent(
        id="e", source="/orders", type=ORDER_PLACED, subject=FIRST, time=NOW, version=1
    )
    seen = [
        Snapshot(message_id, event.encoded(), 1, 0, None, None, {})
        for message_id in ("a", "a", "b")
    ]

    events = Events.of(seen, Counts(dropped_by_detection=1), Counter())

    assert (events.placed, events.repeats) == (Counter({FIRST: 2}), 1)


def test_the_witness_is_a_subscription_beside_those_of_the_app() -> None:
    entities = with_witness(Entities.load(ENTITIES))

    assert set(entities.names()) - set(Entities.load(ENTITIES).names()) == {
        "order-events/subscriptions/witness"
    }
