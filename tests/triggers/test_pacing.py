"""Pacing: how long a delivery is held before it is given back."""

from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency.triggers.pacing import Pacing


@given(count=st.none() | st.integers(-5, 10**9), at_least=st.floats(0, 10**6))
def test_a_hold_is_never_negative_and_never_over_the_longest(
    count: int | None, at_least: float
) -> None:
    assert 0 < Pacing().hold(count, at_least=at_least) <= 30


@given(count=st.integers(1, 4))
def test_each_delivery_is_held_longer_than_the_one_before(count: int) -> None:
    pacing = Pacing(first=1.0, longest=60.0)
    assert pacing.hold(count + 1) > pacing.hold(count)


def test_deliveries_that_failed_together_do_not_come_back_together() -> None:
    assert len({Pacing().hold(3) for _ in range(20)}) > 10


def test_a_store_s_hint_is_heeded_up_to_the_longest() -> None:
    assert Pacing().hold(1, at_least=12.0) == 12.0
    assert Pacing().hold(1, at_least=600.0) == 30.0
