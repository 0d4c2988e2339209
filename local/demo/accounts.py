"""The account: what was sent, what became of it, and whether the numbers add up."""

from collections import Counter
from dataclasses import dataclass

from local.demo.evidence import MISMATCH, Evidence
from local.demo.problems import problems
from local.demo.telemetry import Telemetry
from local.demo.traffic import Origin

GIVEN_UP = "MaxDeliveryCountExceeded"


@dataclass(frozen=True, slots=True)
class OriginRow:
    """Orders of one origin.

    resent: messages or requests that the producers sent for them beyond the first.
    came_again: deliveries to a consumer beyond the first.
    """

    origin: str
    orders: int
    resent: int
    came_again: int
    effects: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the report shows.

    delivered: from both queues, redeliveries included; the sum of effects, duplicates, mismatches,
        rejected and given_back.
    processed: orders with an effect. duplicates: deliveries that came to nothing, as they should.
    redelivered, resent: duplicates by cause, from the consumers' logs. broker_redeliveries: how
        often the broker handed out a message again.
    rejected: deliveries that no one can use. given_back: deliveries that failed and came again.
    charged, charged_twice: orders that were paid for, and of these more than once. charges: in all.
    provider_faults: how often each has struck.
    told_placed, told_fulfilled: order events that subscribers got. events_repeated: those sent again
        under a MessageId that the broker knew. fulfilled: effects of the fulfilment.
    problems: what must not be; empty when all is well.
    """

    protected: bool
    orders: int
    sent: int
    sent_through_storage_queue: int
    dropped: int
    delivered: int
    effects: int
    processed: int
    duplicates: int
    redelivered: int
    resent: int
    broker_redeliveries: int
    mismatches: int
    rejected: int
    given_back: int
    lost: int
    doubled: int
    overwritten: int
    dead_letters: dict[str, int]
    mismatch_example: str | None
    origins: tuple[OriginRow, ...]
    telemetry: Telemetry
    telemetry_missing: int
    pairs_in_two_processes: int
    http_repeats: int
    replayed: int
    killed: int
    held_by_killed: int
    messages_per_second: float
    charged: int
    charged_twice: int
    charges: int
    provider_faults: dict[str, int]
    told_placed: int
    told_fulfilled: int
    events_repeated: int
    fulfilled: int
    problems: tuple[str, ...]

    @property
    def machine_line(self) -> str:
        """The last line of the demo."""
        return (
            f"processed: {self.processed}, duplicates: {self.duplicates},"
            f" mismatches: {self.mismatches}, lost: {self.lost}, doubled: {self.doubled},"
            f" charged: {self.charged}, charged_twice: {self.charged_twice}"
        )


def drawn_up(evidence: Evidence) -> Accounts:
    """Count, and judge."""
    orders = evidence.traffic.orders
    ledger, logs, broker = evidence.ledger, evidence.logs, evidence.broker
    reasons = Counter(letter.reason or "" for letter in evidence.dead_letters)
    delivered = evidence.delivered
    effects = ledger.effects.total()
    mismatches = reasons[MISMATCH]
    rejected = reasons.total() - mismatches - reasons[GIVEN_UP]
    given_back = evidence.given_back
    outcome, payments = evidence.outcome, evidence.payments
    return Accounts(
        protected=evidence.protected,
        orders=len(orders),
        sent=broker.sent,
        sent_through_storage_queue=outcome.sent_through_storage_queue,
        dropped=broker.dropped_by_detection,
        delivered=delivered,
        effects=effects,
        processed=len(ledger.effects),
        duplicates=delivered - effects - mismatches - rejected - given_back,
        redelivered=logs.count("duplicate", "redelivery"),
        resent=logs.count("duplicate", "resend"),
        broker_redeliveries=broker.locks_expired + broker.abandoned,
        mismatches=mismatches,
        rejected=rejected,
        given_back=given_back,
        lost=len(ledger.lost_of(orders)),
        doubled=ledger.doubled,
        overwritten=len(ledger.overwritten_of(orders)),
        dead_letters=dict(sorted(reasons.items())),
        mismatch_example=next(
            (
                f"{letter.message_id}: {letter.description}"
                for letter in evidence.dead_letters
                if letter.reason == MISMATCH
            ),
            None,
        ),
        origins=tuple(_row(origin, evidence) for origin in Origin),
        telemetry=evidence.telemetry,
        telemetry_missing=evidence.handled - evidence.telemetry.handled,
        pairs_in_two_processes=_in_two_processes(evidence),
        http_repeats=outcome.http_repeats,
        replayed=outcome.replayed,
        killed=outcome.killed,
        held_by_killed=outcome.held_by_killed,
        messages_per_second=round(outcome.steady_messages / outcome.steady_seconds, 1),
        charged=payments.charged,
        charged_twice=len(payments.charged_twice),
        charges=payments.charges.total(),
        provider_faults=dict(sorted(payments.struck.items())),
        told_placed=evidence.events.placed.total(),
        told_fulfilled=evidence.events.fulfilled.total(),
        events_repeated=evidence.events.repeats,
        fulfilled=evidence.events.fulfilments.total(),
        problems=tuple(problems(evidence)),
    )


def _row(origin: Origin, evidence: Evidence) -> OriginRow:
    orders = evidence.traffic.of(origin)
    deliveries = sum(len(evidence.logs.deliveries_of(planned.id)) for planned in orders)
    by_producer = origin not in (
        Origin.ONCE,
        Origin.ACKNOWLEDGEMENT_LOST,
        Origin.LOCK_EXPIRED,
        Origin.CONSUMER_KILLED,
    )
    return OriginRow(
        origin=origin.value,
        orders=len(orders),
        resent=len(orders) if by_producer else 0,
        came_again=deliveries - len(orders),
        effects=sum(evidence.ledger.effects[planned.id] for planned in orders),
        doubled=evidence.ledger.doubled_of(orders),
    )


def _in_two_processes(evidence: Evidence) -> int:
    """Pairs of messages sent at the same moment of which each was handled by another consumer."""
    pairs = evidence.traffic.of(Origin.TWO_AT_ONCE)
    consumers = ({h.consumer for h in evidence.logs.deliveries_of(each.id)} for each in pairs)
    return sum(1 for names in consumers if len(names) > 1)
