"""Effects are counted from the journal alone: a keyed document cannot show that it came twice."""

from local.demo.ledger import Ledger
from local.demo.traffic import FEWEST, Traffic

PLANNED, OTHER, *_ = Traffic.planned(FEWEST, seed=1).orders
LINE = {"type": "journal", "effect": "placed", "order_id": PLANNED.id}
ORDER = {
    "type": "order",
    "order_id": PLANNED.id,
    "customer_id": PLANNED.order.customer_id,
    "total": str(PLANNED.order.total()),
}


def test_two_lines_for_one_order_are_one_effect_too_many() -> None:
    ledger = Ledger.of([ORDER, LINE, LINE])

    assert (ledger.doubled, ledger.doubled_of([PLANNED]), ledger.doubled_of([OTHER])) == (1, 1, 0)


def test_an_order_without_a_line_is_lost_even_if_its_document_is_there() -> None:
    assert Ledger.of([ORDER]).lost_of([PLANNED]) == (PLANNED.id,)
    assert Ledger.of([ORDER, LINE]).lost_of([PLANNED]) == ()


def test_a_document_with_other_content_than_was_sent_first_is_overwritten() -> None:
    changed = {**ORDER, "customer_id": "somebody-else"}

    assert Ledger.of([changed]).overwritten_of([PLANNED]) == (PLANNED.id,)
    assert Ledger.of([ORDER]).overwritten_of([PLANNED]) == ()


def test_what_else_the_app_keeps_beside_orders_is_no_effect() -> None:
    others = [{"type": "event", "order_id": PLANNED.id}, {**LINE, "effect": "paid"}, {"id": "x"}]

    assert Ledger.of(others).effects.total() == 0
