"""The purge deletes what has expired, and nothing else, however often it is interrupted."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from azure.data.tables.aio import TableClient

from shared.idempotency import (
    Consumer,
    Delivery,
    Handled,
    Outcome,
    Policy,
    Record,
    ResultCodec,
    Status,
    StoreUnavailable,
)
from shared.idempotency.events import Fenced
from shared.idempotency.purging import Purged, expired, purge
from shared.idempotency.scanning import Found, Page, Placement, Query
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_scan import TableScan
from shared.idempotency.testing import a_record
from tests.contract.scans import own_table

pytestmark = pytest.mark.integration


@pytest.fixture
async def table(request: pytest.FixtureRequest) -> AsyncIterator[TableClient]:
    async with own_table(request) as client:
        yield client


def over(**fields: object) -> Record:
    """A finished record whose retention of -60 seconds ended before it began."""
    finished = {"status": Status.COMPLETED, "finished_at": 160.0, "expires_at": 100.0}
    return a_record(**{**finished, **fields})  # type: ignore[arg-type]


async def put(table: TableClient, *records: Record) -> None:
    store = TableStore(table)
    for record in records:
        assert await store.insert(record)


async def keys(table: TableClient) -> set[str]:
    scan = TableScan(table, placement=Placement.DEDICATED)
    return {found.record.key async for page in scan.pages(Query()) for found in page.records}


async def test_given_expired_records_then_they_go_and_all_others_stay(table: TableClient) -> None:
    gone = [over(), over(status=Status.FAILED)]
    kept = [
        over(expires_at=4_000_000_000.0),
        over(finished_at=None),
        over(expires_at=None),
        over(status=Status.IN_PROGRESS),
        over(status=Status.QUARANTINED),
        over(status=Status.UNCERTAIN),
        over(status=Status.RELEASED),
        # by this machine's clock it is over; by the service's it was written a moment ago
        over(finished_at=0.0, expires_at=3600.0),
    ]
    await put(table, *gone, *kept)
    scan = TableScan(table, placement=Placement.DEDICATED)

    assert await expired(scan) == (2, False)
    purged = await purge(scan)

    assert purged == Purged(deleted=2, kept=0, pages=1, finished=True)
    assert await keys(table) == {record.key for record in kept}


async def test_given_more_than_a_transaction_takes_then_all_go(table: TableClient) -> None:
    records = [over() for _ in range(3)]
    await put(table, *records)
    partition = "contract~00"
    operations = [
        (
            "create",
            {
                "PartitionKey": partition,
                "RowKey": f"r{n}",
                "consumer": "contract",
                "key": f"r{n}",
                "owner": "o",
                "status": "completed",
                "finished_at": 160.0,
                "expires_at": 100.0,
            },
        )
        for n in range(150)
    ]
    await table.submit_transaction(operations[:100])
    await table.submit_transaction(operations[100:])

    purged = await purge(TableScan(table, placement=Placement.DEDICATED))

    assert (purged.deleted, purged.finished) == (153, True)
    assert await keys(table) == set()


async def test_given_records_that_change_between_look_and_delete_then_they_alone_stay(
    table: TableClient,
) -> None:
    records = [over() for _ in range(6)]
    await put(table, *records)
    one_partition = [r.key for r in records]

    class Interrupted(TableScan):
        async def delete_all(self, found: list[Found]) -> int:
            store = TableStore(table)
            for each in found[:2]:
                assert await store.replace(each.record.replaced(attempt=2), each.etag)
            assert await store.delete(found[2].record, found[2].etag)
            return await super().delete_all(found)

    purged = await purge(Interrupted(table, placement=Placement.DEDICATED))

    assert (purged.deleted, purged.kept) == (3, 3)
    assert len(await keys(table)) == 2
    assert await keys(table) < set(one_partition)


async def test_given_a_bounded_run_then_the_next_goes_on_where_it_stopped(
    table: TableClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[str | None] = []

    class Small(TableScan):
        async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
            scanned.append(resume)
            small = Query(statuses=query.statuses, expired_by=query.expired_by, page_size=2)
            async for page in super().pages(small, resume=resume):
                yield page

    # never deleted, so that a run which began anew would meet the same ones
    await put(table, *(over(finished_at=0.0, expires_at=3600.0) for _ in range(5)))
    scan = Small(table, placement=Placement.DEDICATED)

    runs = [await purge(scan, most_pages=1) for _ in range(3)]
    fresh = await purge(scan, most_pages=1)

    assert [run.finished for run in runs] == [False, False, True]
    assert scanned[0] is None
    assert None not in scanned[1:3]
    assert scanned[1] != scanned[2]
    assert scanned[3] is None, "after the end it begins anew"
    assert not fresh.finished


async def test_given_the_note_of_where_it_stopped_then_it_is_no_record(table: TableClient) -> None:
    scan = TableScan(table, placement=Placement.DEDICATED)
    await scan.note_position('{"PartitionKey": "a", "RowKey": "b"}')

    assert await keys(table) == set()
    assert await scan.position() == '{"PartitionKey": "a", "RowKey": "b"}'


async def test_given_one_consumer_then_only_its_records_go(table: TableClient) -> None:
    mine, other = over(), over().replaced(consumer="contract-2")
    await put(table, mine, other)

    purged = await purge(TableScan(table, placement=Placement.DEDICATED), consumer="contract-2")

    assert purged.deleted == 1
    assert await keys(table) == {mine.key}


async def test_given_a_run_that_is_cut_off_then_what_it_deleted_is_gone_and_the_next_goes_on(
    table: TableClient,
) -> None:
    await put(table, *(over() for _ in range(8)))
    calls = 0

    class CutOff(TableScan):
        async def pages(self, query: Query, *, resume: str | None = None) -> AsyncIterator[Page]:
            small = Query(statuses=query.statuses, expired_by=query.expired_by, page_size=2)
            async for page in super().pages(small, resume=resume):
                yield page

        async def delete_all(self, found: list[Found]) -> int:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise StoreUnavailable("down")
            return await super().delete_all(found)

    scan = CutOff(table, placement=Placement.DEDICATED)
    with pytest.raises(StoreUnavailable):
        await purge(scan)
    left = await keys(table)
    assert 0 < len(left) < 8

    purged = await purge(scan)

    assert (purged.deleted, purged.finished) == (len(left), True)
    assert await keys(table) == set()


async def test_given_live_traffic_then_purges_beside_it_disturb_no_attempt_and_no_renewed_key(
    table: TableClient,
) -> None:
    """Keys that are used again while the purge deletes what they had: each use has its one effect."""
    fenced: list[Fenced] = []
    consumer = Consumer(
        "contract",
        TableStore(table),
        reusable_keys=True,
        policy=Policy(memory=0.0),
        observer=lambda event: fenced.append(event) if isinstance(event, Fenced) else None,
    )
    names = [f"key-{n}" for n in range(12)]
    await put(table, *(over(key=name) for name in names), *(over() for _ in range(12)))
    working, go_on = asyncio.Semaphore(0), asyncio.Event()
    done: list[str] = []

    async def use(name: str) -> Handled[None]:
        async def work() -> None:
            working.release()
            await go_on.wait()
            done.append(name)

        return await consumer.handle(Delivery(key=name), work, ResultCodec(type(None)))

    scan = TableScan(table, placement=Placement.DEDICATED)
    purges = [asyncio.create_task(purge(scan)) for _ in range(2)]
    uses = [asyncio.create_task(use(name)) for name in names]
    for _ in names:
        await working.acquire()
    beside = [*await asyncio.gather(*purges), await purge(scan)]  # the last, with all in work
    deleted = sum(purged.deleted for purged in beside)
    go_on.set()
    handled = await asyncio.gather(*uses)

    assert {each.outcome for each in handled} == {Outcome.PROCESSED}
    assert sorted(done) == sorted(names)
    assert fenced == []
    assert 12 <= deleted <= 24, "what nobody uses again, and of the rest what was still there"
    assert await keys(table) == set(names)
