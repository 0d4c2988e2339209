"""Stock levels, order events and timelines: what is taken, what is refused, what is kept."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.idempotency import MalformedContent
from shared.idempotency.states import MAX_VERSION
from shared.inventory import StockLevel, stock_id
from shared.order_events import ORDER_PLACED, OrderEvent
from shared.orders import parsed
from shared.timelines import MOST_ENTRIES, with_event

LEVEL = {"sku": "tea.green", "warehouse": "HAM-1", "level": 7, "version": 3}
EVENT = {
    "specversion": "1.0",
    "id": "o-1.1",
    "source": "/orders",
    "type": "OrderPlaced",
    "subject": "o-1",
    "time": "2024-05-01T12:00:00Z",
    "version": 1,
    "data": {"total": "9.80"},
}


def encoded(content: dict[str, Any], **changes: Any) -> bytes:
    kept = {**content, **changes}
    return json.dumps({name: value for name, value in kept.items() if value is not None}).encode()


class TestStockLevels:
    def test_a_level_is_a_state_of_its_article_in_its_warehouse(self) -> None:
        state = parsed(encoded(LEVEL), StockLevel).state()
        assert (state.id, state.version) == ("HAM-1.tea.green", 3)
        assert state.following(None) == {"type": "stock_level", **LEVEL}

    def test_no_two_places_share_an_id(self) -> None:
        """An article may have a dot, a warehouse may not."""
        assert stock_id("a", "b.c") != stock_id("a-b", "c")
        with pytest.raises(MalformedContent):
            parsed(encoded(LEVEL, warehouse="a.b"), StockLevel)

    @pytest.mark.parametrize(
        "changes",
        [
            {"level": -1},
            {"level": 1.5},
            {"version": -1},
            {"version": MAX_VERSION + 1},
            {"version": "3"},
            {"version": None},
            {"sku": ""},
            {"warehouse": "x" * 33},
        ],
    )
    def test_what_is_no_level_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(MalformedContent) as refused:
            parsed(encoded(LEVEL, **changes), StockLevel)
        assert refused.value.reason == "SchemaViolation"


class TestOrderEvents:
    def test_an_event_is_read_as_it_was_published(self) -> None:
        event = parsed(encoded(EVENT), OrderEvent)
        assert event.type == ORDER_PLACED
        assert event.time == datetime(2024, 5, 1, 12, tzinfo=UTC)
        assert parsed(event.encoded(), OrderEvent) == event

    def test_what_a_newer_release_adds_is_no_error(self) -> None:
        event = parsed(encoded(EVENT, type="OrderPraised", traceparent="00-1-2-01"), OrderEvent)
        assert event.type == "OrderPraised"

    @pytest.mark.parametrize(
        "changes",
        [
            {"specversion": "2.0"},
            {"time": "2024-05-01T12:00:00"},
            {"subject": None},
            {"version": 0},
            {"version": None},
            {"data": []},
        ],
    )
    def test_what_is_no_event_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(MalformedContent):
            parsed(encoded(EVENT, **changes), OrderEvent)


class TestTimelines:
    def test_an_event_is_added_to_what_is_there(self) -> None:
        first = with_event(parsed(encoded(EVENT), OrderEvent)).following(None)
        second = parsed(encoded(EVENT, type="OrderPaid", version=4), OrderEvent)
        document = with_event(second).following(first)
        assert document["order_id"] == "o-1"
        assert (document["latest"], document["version"]) == ("OrderPaid", 4)
        assert [entry["version"] for entry in document["entries"]] == [1, 4]
        assert [entry["version"] for entry in first["entries"]] == [1], "the old one is as it was"

    def test_of_a_long_timeline_the_latest_are_kept_and_the_others_counted(self) -> None:
        document: dict[str, Any] | None = None
        for version in range(1, MOST_ENTRIES + 4):
            event = parsed(encoded(EVENT, version=version), OrderEvent)
            document = with_event(event).following(document)
        assert document is not None
        assert [e["version"] for e in document["entries"]] == list(range(4, MOST_ENTRIES + 4))
        assert document["earlier"] == 3
