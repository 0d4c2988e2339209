"""Pacing: how long a delivery is held before it is given back."""

import inspect
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import Policy
from shared.idempotency.triggers import rabbitmq
from shared.idempotency.triggers.pacing import Pacing
from shared.settings import Settings

ROOT = Path(__file__).parents[2]


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


OUTAGE = 120.0
"""Seconds of a store outage that must not cost a message its life."""


def shortest_holds(deliveries: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(random, "uniform", lambda shortest, longest: shortest)
    return [Pacing().hold(count) for count in range(1, deliveries + 1)]


def test_holds_alone_outlast_an_outage_where_a_message_can_only_be_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a session, or without the settlement binding: the tenth delivery still finds the store."""
    before_the_last = shortest_holds(Policy().max_delivery_count - 1, monkeypatch)
    assert sum(before_the_last) > OUTAGE


def test_a_storage_queue_s_few_deliveries_outlast_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = json.loads((ROOT / "host.json").read_text())["extensions"]["queues"]
    hours, minutes, seconds = map(int, settings["visibilityTimeout"].split(":"))
    hidden = hours * 3600 + minutes * 60 + seconds
    before_the_last = shortest_holds(settings["maxDequeueCount"] - 1, monkeypatch)
    assert sum(before_the_last) + hidden * len(before_the_last) > OUTAGE


def test_rabbitmq_s_six_deliveries_outlive_a_store_that_is_down_for_two_minutes() -> None:
    """Azure's extension publishes what failed again at once, five times, and then rejects it."""
    default = inspect.signature(rabbitmq.idempotent).parameters["pacing"].default
    shortest = min(default.hold(None) for _ in range(200))
    assert 6 * shortest > 120
    assert (
        Settings.read({"AzureWebJobsStorage": "UseDevelopmentStorage=true"}).rabbitmq_pacing
        == default
    )
