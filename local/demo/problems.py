"""What must not be: lost and doubled orders, and numbers that contradict each other."""

from collections import Counter
from collections.abc import Iterable, Iterator

from local.demo.evidence import MISMATCH, Evidence
from local.demo.traffic import Origin


def problems(evidence: Evidence) -> Iterator[str]:
    """What must not be. Without protection only that is judged which protection is not about."""
    if lost := evidence.ledger.lost_of(evidence.traffic.orders):
        yield f"lost: {_some(lost)}"
    if unpaid := evidence.payments.unpaid_of(evidence.traffic.orders):
        yield f"not charged: {_some(unpaid)}"
    if evidence.poison_messages:
        yield f"{evidence.poison_messages} messages in the poison queue, none expected"
    if evidence.delivered_by_broker != evidence.logs.from_service_bus:
        yield (
            f"the broker delivered {evidence.delivered_by_broker} messages, the consumers log"
            f" {evidence.logs.from_service_bus}"
        )
    if evidence.protected:
        yield from _problems_in_spite_of_protection(evidence)


def _problems_in_spite_of_protection(evidence: Evidence) -> Iterator[str]:
    ledger, broker, logs = evidence.ledger, evidence.broker, evidence.logs
    traffic, outcome = evidence.traffic, evidence.outcome
    if doubled := tuple(key for key, count in ledger.effects.items() if count > 1):
        yield f"doubled: {_some(doubled)}"
    yield from _wrong_charges(evidence)
    yield from evidence.events.problems(traffic.orders)
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
    handled = evidence.handled
    effects = logs.count("processed")
    if effects != ledger.effects.total():
        yield f"the consumers log {effects} effects, the store holds {ledger.effects.total()}"
    residual = evidence.delivered - handled - evidence.given_back
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


def _wrong_charges(evidence: Evidence) -> Iterator[str]:
    payments = evidence.payments
    if twice := payments.charged_twice:
        yield f"charged twice: {_some(twice)}"
    if strange := sorted(payments.charges.keys() - evidence.ledger.effects.keys()):
        yield f"charged for orders that were never placed: {_some(strange)}"
    if payments.dead:
        yield f"{payments.dead} order events are dead letters, none expected"


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
