"""The timer's work is counted, bounded, and one job's trouble is not the other's."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.idempotency import Event, Policy, Status, StoreUnavailable
from shared.idempotency.events import UnfinishedCounted, UpkeepRan
from shared.idempotency.retention_check import RetentionCheck
from shared.idempotency.scanning import Found, Page, Query
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_scan import MemoryScan
from shared.idempotency.surveying import survey
from shared.idempotency.testing import FakeClock, a_record
from shared.idempotency.upkeep import Upkeep

DAY = 86400.0


class PurgeableMemory(MemoryScan):
    """As a table is: it deletes many at a time, and keeps where it stopped."""

    down = False
    noted: str | None = None

    async def delete_all(self, found: list[Found]) -> int:
        if self.down:
            raise StoreUnavailable("down")
        return sum([await self.delete(each) for each in found])

    async def position(self) -> str | None:
        return self.noted

    async def note_position(self, position: str | None) -> None:
        self.noted = position


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.scan = PurgeableMemory(self.store)
        self.events: list[Event] = []
        self.upkeep = Upkeep([self.scan], self.events.append, purgeable=self.scan)

    def ran(self) -> dict[str, tuple[str, int]]:
        return {e.job: (e.result, e.items) for e in self.events if isinstance(e, UpkeepRan)}

    def unfinished(self) -> dict[tuple[str, str], int]:
        counted = [e for e in self.events if isinstance(e, UnfinishedCounted)]
        return {(e.consumer, str(e.status)): e.records for e in counted}


async def test_what_expired_goes_and_what_is_stuck_is_counted() -> None:
    bench = Bench()
    await bench.store.insert(a_record(status=Status.COMPLETED, finished_at=160.0, expires_at=100.0))
    await bench.store.insert(a_record())
    await bench.store.insert(a_record(status=Status.QUARANTINED))
    await bench.clock.advance(1000.0)
    await bench.store.insert(a_record())

    await bench.upkeep.run()

    assert bench.ran() == {"purge": ("done", 1), "survey": ("done", 2)}
    assert bench.unfinished() == {
        ("contract", "in_progress"): 1,
        ("contract", "quarantined"): 1,
    }
    oldest = [e.oldest for e in bench.events if isinstance(e, UnfinishedCounted)]
    assert oldest == [1000.0, 1000.0]


async def test_what_is_not_stuck_any_more_is_told_as_none_once() -> None:
    bench = Bench()
    stored = await bench.store.insert(a_record())
    assert stored
    await bench.clock.advance(1000.0)
    await bench.upkeep.run()
    await bench.store.delete(stored.record, stored.etag)

    bench.events.clear()
    await bench.upkeep.run()
    assert bench.unfinished() == {("contract", "in_progress"): 0}

    bench.events.clear()
    await bench.upkeep.run()
    assert bench.unfinished() == {}


async def test_a_store_that_is_down_for_the_purge_is_still_surveyed_and_the_run_fails() -> None:
    bench = Bench()
    bench.scan.down = True
    await bench.store.insert(a_record())
    await bench.clock.advance(1000.0)

    with pytest.raises(StoreUnavailable):
        await bench.upkeep.run()

    assert bench.ran() == {"purge": ("failed", 0), "survey": ("done", 1)}


async def test_where_the_store_deletes_by_itself_no_purge_is_needed_and_that_is_told() -> None:
    bench = Bench()
    upkeep = Upkeep([bench.scan], bench.events.append, purgeable=None)

    await upkeep.run()

    assert bench.ran()["purge"] == ("not_needed", 0)


async def test_a_survey_is_bounded_and_says_so() -> None:
    bench = Bench()
    for _ in range(5):
        await bench.store.insert(a_record())

    told = await survey([bench.scan], Query(page_size=2), most_pages=2)

    assert sum(tally.records for tally in told.tallies) == 4
    assert told.complete is False


class Never(MemoryScan):
    async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
        raise StoreUnavailable("down")
        yield


async def test_a_survey_that_fails_counts_nothing() -> None:
    bench = Bench()
    upkeep = Upkeep([Never(bench.store)], bench.events.append, purgeable=bench.scan)

    with pytest.raises(StoreUnavailable):
        await upkeep.run()

    assert bench.ran()["survey"] == ("failed", 0)
    assert bench.unfinished() == {}


# ---------------------------------------------------------------- retention, while an app runs


def namespace(days: int) -> Any:
    async def list_queues() -> Any:
        for name in ("orders", "quarantine"):
            yield SimpleNamespace(
                name=name,
                max_delivery_count=10,
                lock_duration="PT1M",
                default_message_time_to_live=f"P{days}D",
            )

    async def list_topics() -> Any:
        return
        yield

    return SimpleNamespace(list_queues=list_queues, list_topics=list_topics)


def check() -> RetentionCheck:
    return RetentionCheck(Policy(), dead_letters=14 * DAY, unread=["quarantine"])


async def test_a_namespace_whose_messages_outlive_records_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        yield namespace(20)

    checked = check()
    await checked.once(connect)
    await checked.once(connect)

    [complaint] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "orders: " in complaint.getMessage()
    assert "96.1667 h too short" in complaint.getMessage()


async def test_a_namespace_that_tells_nothing_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        raise PermissionError("401")
        yield

    await check().once(connect)

    assert "PermissionError" in caplog.text
    assert "was not checked" in caplog.text


def test_an_entity_file_is_complained_of_at_the_start(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "entities.json"
    file.write_text(
        '{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "orders", "Properties": '
        '{"DefaultMessageTimeToLive": "P20D"}}]}]}}'
    )

    check().at_start(file)

    assert "96.1667 h too short" in caplog.text
