"""The account: what was sent, what became of it, and whether the numbers add up.

Effects come from the store, deliveries from the broker and the consumers' logs, refusals from the
dead-letter queue. Telemetry is compared with these and never counted on: a process that is killed
takes with it what it has not exported.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from local.demo.consumers import Logs
from local.demo.ledger import Ledger
from local.demo.scenario import Outcome
from local.demo.telemetry import Telemetry
from local.demo.traffic import Origin, Traffic
from local.servicebus import Counts, Snapshot

MISMATCH = "PayloadMismatch"
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
class Evidence:
    """Everything there is to judge by, gathered after the consumers have ended."""

    protected: bool
    traffic: Traffic
    outcome: Outcome
    broker: Counts
    dead_letters: tuple[Snapshot, ...]
    poison_messages: int
    ledger: Ledger
    logs: Logs
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the report shows.

    delivered: from both queues, redeliveries included; the sum of effects, duplicates, mismatches,
        rejected and given_back.
    processed: orders with an effect. duplicates: deliveries that came to nothing, as they should.
    redelivered, resent: duplicates by cause, from the consumers' logs. broker_redeliveries: how
        often the broker handed out a message again.
    rejected: deliveries that no one can use. given_back: deliveries that failed and came again.
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
    problems: tuple[str, ...]

    @property
    def machine_line(self) -> str:
        """The last line of the demo."""
        return (
            f"processed: {self.processed}, duplicates: {self.duplicates},"
            f" mismatches: {self.mismatches}, lost: {self.lost}, doubled: {self.doubled}"
        )


def drawn_up(evidence: Evidence) -> Accounts:
    """Count, and judge."""
    orders = evidence.traffic.orders
    ledger, logs, broker = evidence.ledger, evidence.logs, evidence.broker
    reasons = Counter(letter.reason or "" for letter in evidence.dead_letters)
    delivered = broker.delivered + logs.from_storage_queue
    effects = ledger.effects.total()
    mismatches = reasons[MISMATCH]
    rejected = reasons.total() - mismatches - reasons[GIVEN_UP]
    given_back = _given_back(evidence)
    outcome = evidence.outcome
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
        broker_redeliveries=broker.locks_expired + broker.abandoned + broker.released,
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
        telemetry_missing=_handled(logs) - evidence.telemetry.handled,
        pairs_in_two_processes=_in_two_processes(evidence),
        http_repeats=outcome.http_repeats,
        replayed=outcome.replayed,
        killed=outcome.killed,
        held_by_killed=outcome.held_by_killed,
        messages_per_second=round(outcome.steady_messages / outcome.steady_seconds, 1),
        problems=tuple(_problems(evidence)),
    )


def _given_back(evidence: Evidence) -> int:
    """Deliveries that ended without any result, so that the message came again.

    The module logs them as faults. A refusal of the handler's own is logged as one too, but ends
    as a dead letter: the messages that nobody can use are not counted here.
    """
    if not evidence.protected:
        return evidence.logs.failed
    unusable = {each.message.message_id for each in evidence.traffic.malformed}
    return sum(
        1
        for each in evidence.logs.handlings
        if each.outcome == "fault" and each.key not in unusable
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


def _handled(logs: Logs) -> int:
    """Deliveries that the module counts: all but faults."""
    return sum(1 for each in logs.handlings if each.outcome != "fault")


def _problems(evidence: Evidence) -> Iterator[str]:
    """What must not be. Without protection only that is judged which protection is not about."""
    ledger, broker = evidence.ledger, evidence.broker
    orders = evidence.traffic.orders
    if lost := ledger.lost_of(orders):
        yield f"lost: {_some(lost)}"
    if evidence.poison_messages:
        yield f"{evidence.poison_messages} messages in the poison queue, none expected"
    if broker.delivered != evidence.logs.from_service_bus:
        yield (
            f"the broker delivered {broker.delivered} messages, the consumers log"
            f" {evidence.logs.from_service_bus}"
        )
    if evidence.protected:
        yield from _problems_in_spite_of_protection(evidence)


def _problems_in_spite_of_protection(evidence: Evidence) -> Iterator[str]:
    ledger, broker, logs = evidence.ledger, evidence.broker, evidence.logs
    traffic, outcome = evidence.traffic, evidence.outcome
    if doubled := tuple(key for key, count in ledger.effects.items() if count > 1):
        yield f"doubled: {_some(doubled)}"
    if strange := sorted(ledger.effects.keys() - {planned.id for planned in traffic.orders}):
        yield f"effects of orders that should have been refused: {_some(strange)}"
    if overwritten := ledger.overwritten_of(traffic.orders):
        yield f"not the content that came first: {_some(overwritten)}"
    if broker.sent != outcome.sent:
        yield f"{outcome.sent} messages were sent, the broker has seen {broker.sent}"
    if outcome.replayed != outcome.http_repeats:
        yield f"{outcome.http_repeats} requests repeated, {outcome.replayed} answered as repeats"
    expected_drops = len(traffic.of(Origin.RESENT_IN_WINDOW))
    if broker.dropped_by_detection != expected_drops:
        yield f"the broker dropped {broker.dropped_by_detection} messages, not {expected_drops}"
    yield from _wrong_dead_letters(evidence)
    handled = _handled(logs)
    effects = logs.count("processed")
    if effects != ledger.effects.total():
        yield f"the consumers log {effects} effects, the store holds {ledger.effects.total()}"
    residual = evidence.broker.delivered + logs.from_storage_queue - handled - _given_back(evidence)
    refused_unseen = len(traffic.malformed)
    if residual != refused_unseen:
        yield (
            f"{residual - refused_unseen} deliveries have no outcome in any log: a consumer that"
            " was killed before it could tell, or a message settled without being handled"
        )
    missing = handled - evidence.telemetry.handled
    if not 0 <= missing <= logs.of_killed:
        yield (
            f"telemetry has {evidence.telemetry.handled} of {handled} deliveries, and the killed"
            f" consumer handled only {logs.of_killed}"
        )


def _wrong_dead_letters(evidence: Evidence) -> Iterator[str]:
    expected = Counter(
        [f"{each.message.message_id}: {each.reason}" for each in evidence.traffic.malformed]
        + [f"{each.id}: {MISMATCH}" for each in evidence.traffic.of(Origin.ID_REUSED)]
    )
    found = Counter(f"{letter.message_id}: {letter.reason}" for letter in evidence.dead_letters)
    if missing := sorted((expected - found).elements()):
        yield f"dead letters that are missing: {_some(missing)}"
    if surplus := sorted((found - expected).elements()):
        yield f"dead letters that should not be: {_some(surplus)}"


def _some(ids: Iterable[str]) -> str:
    first = tuple(ids)
    return ", ".join(first[:5]) + (f" and {len(first) - 5} more" if len(first) > 5 else "")
