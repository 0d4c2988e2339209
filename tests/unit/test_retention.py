"""Records outlive every message that can still come back, or somebody is told by how much they do not."""

import math

import pytest

from shared.idempotency.retention import Window, complaint, shortfall

DAY = 24 * 3600.0


def _window(time_to_live: float | None = 14 * DAY, dead_letters: float = 14 * DAY) -> Window:
    return Window(
        entity="orders",
        max_delivery_count=10,
        lock=360.0,
        time_to_live=time_to_live,
        dead_letters=dead_letters,
    )


def test_the_window_is_deliveries_times_lock_plus_life_plus_time_as_a_dead_letter() -> None:
    assert _window().seconds == 3600.0 + 28 * DAY


def test_without_a_time_to_live_a_message_can_come_back_for_ever() -> None:
    assert math.isinf(_window(time_to_live=None).seconds)
    assert math.isinf(shortfall(_window(time_to_live=None), 365 * DAY))


@pytest.mark.parametrize(
    ("retention", "hours"),
    [
        (28 * DAY, 1.0),
        (28 * DAY + 3600.0, 0.0),
        (28 * DAY + 3599.0, 1 / 3600),
        (30 * DAY, 0.0),
        (DAY, 27 * 24 + 1.0),
    ],
)
def test_the_shortfall_is_in_hours_and_never_less_than_none(retention: float, hours: float) -> None:
    assert shortfall(_window(), retention) == pytest.approx(hours)


def test_a_retention_as_long_as_the_window_is_no_reason_to_complain() -> None:
    assert complaint(_window(), retention=28 * DAY + 3600.0, max_age=None) is None


def test_a_retention_too_short_is_told_with_every_number_in_it() -> None:
    told = complaint(_window(), retention=14 * DAY, max_age=None)

    assert told is not None
    for number in ("336 h", "673 h", "10 deliveries x 360 s", "336 h time to live", "337 h too"):
        assert number in told
    assert told.startswith("orders: ")


def test_messages_that_never_expire_need_a_declared_age() -> None:
    told = complaint(_window(time_to_live=None), retention=365 * DAY, max_age=None)

    assert told is not None
    assert "never expire" in told
    assert "max_age" in told


@pytest.mark.parametrize("time_to_live", [None, 14 * DAY])
def test_an_age_limit_within_the_retention_closes_the_window(time_to_live: float | None) -> None:
    window = _window(time_to_live=time_to_live)

    assert complaint(window, retention=DAY, max_age=DAY) is None


def test_an_age_limit_beyond_the_retention_closes_nothing() -> None:
    assert complaint(_window(), retention=DAY, max_age=2 * DAY) is not None
    assert complaint(_window(time_to_live=None), retention=DAY, max_age=2 * DAY) is not None
