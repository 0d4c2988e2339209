from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.host.timer import schedule
from shared.idempotency.schedules import crontab

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)  # a Sunday


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("*/5 * * * * *", datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)),
        ("0 0 2 * * *", datetime(2026, 3, 2, 2, tzinfo=UTC)),
        ("0 30 9 * * MON-FRI", datetime(2026, 3, 2, 9, 30, tzinfo=UTC)),
        ("0 15,45 * * * *", datetime(2026, 3, 1, 12, 15, tzinfo=UTC)),
        ("0 0 0 29 2 *", datetime(2028, 2, 29, tzinfo=UTC)),
        ("0 0 0 1 JAN *", datetime(2027, 1, 1, tzinfo=UTC)),
        ("30 2 * * *", datetime(2026, 3, 2, 2, 30, tzinfo=UTC)),
        ("00:00:30", datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)),
    ],
)
def test_the_next_slot_is_the_first_one_later(expression: str, following: datetime) -> None:
    assert schedule(expression).after(NOON) == following


def test_day_and_weekday_must_both_match() -> None:
    assert schedule("0 0 0 13 * FRI").after(NOON) == datetime(2026, 3, 13, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "named"),
    [("61 * * * * *", "second"), ("0 0 0 * * FOO", "weekday"), ("0 0 0 * * * *", "7 fields")],
)
def test_a_wrong_expression_names_what_is_wrong(expression: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        schedule(expression)


def test_a_date_that_never_comes_is_refused() -> None:
    with pytest.raises(ValueError, match="no such date"):
        schedule("0 0 0 31 2 *").after(NOON)


MOMENTS = st.datetimes(
    min_value=datetime(2024, 1, 1), max_value=datetime(2031, 1, 1), timezones=st.just(UTC)
)


@given(
    moment=MOMENTS,
    expression=st.sampled_from(
        ["*/7 * * * * *", "0 15,45 */5 * * *", "30 0 2 * * MON-FRI", "0 0 0 29 2 *", "0 0 0 13 * 5"]
    ),
)
def test_the_last_slot_and_the_next_one_have_no_slot_between_them(
    moment: datetime, expression: str
) -> None:
    slots = crontab(expression)

    last, following = slots.at_or_before(moment), slots.after(moment)

    assert last <= moment < following
    assert slots.after(last) == following
    assert slots.at_or_before(following) == following
    assert slots.at_or_before(following - timedelta(microseconds=1)) == last
