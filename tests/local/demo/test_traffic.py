"""What the demo sends is the same for a seed, and holds some of every kind."""

from collections import Counter

import msgspec
import pytest

from local.demo.traffic import FEWEST, Origin, Traffic, batches
from shared.orders import Order, changed_fields


@pytest.mark.parametrize("size", [FEWEST, 120, 500])
def test_any_size_has_that_many_orders_and_some_of_every_origin(size: int) -> None:
    traffic = Traffic.planned(size, seed=1)

    origins = Counter(planned.origin for planned in traffic.orders)
    assert origins.total() == size
    assert set(origins) == set(Origin)
    assert len({planned.id for planned in traffic.orders}) == size


def test_about_a_third_of_the_orders_come_again() -> None:
    traffic = Traffic.planned(500, seed=1)

    assert 0.25 <= 1 - len(traffic.of(Origin.ONCE)) / 500 <= 0.4


def test_the_same_seed_gives_the_same_traffic_and_another_seed_another() -> None:
    assert Traffic.planned(50, seed=7) == Traffic.planned(50, seed=7)
    assert Traffic.planned(50, seed=7) != Traffic.planned(50, seed=8)


def test_fewer_orders_than_there_are_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at least {FEWEST}"):
        Traffic.planned(FEWEST - 1, seed=1)


def test_a_message_under_a_new_id_is_the_same_logical_message() -> None:
    planned = Traffic.planned(FEWEST, seed=1).orders[0]

    again = planned.under_new_id("again")

    assert again.message_id != planned.message().message_id
    assert again.deduplication_key == planned.id
    assert again.body == planned.message().body


def test_an_altered_message_has_the_same_id_and_other_content_in_two_fields() -> None:
    planned = Traffic.planned(FEWEST, seed=1).orders[0]
    recorded = msgspec.to_builtins(planned.order)

    altered = planned.altered()

    assert altered.message_id == planned.id
    assert set(changed_fields(recorded, altered.body)) == {"customer_id", "lines"}
    assert msgspec.json.decode(altered.body, type=Order).total() != planned.order.total()


def test_batches_hold_everything_in_order() -> None:
    assert list(batches((1, 2, 3, 4, 5), size=2)) == [(1, 2), (3, 4), (5,)]
