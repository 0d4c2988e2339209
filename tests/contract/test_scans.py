"""Looking through records finds all that are asked for, and changes one only as it was seen."""

import uuid
from collections.abc import AsyncIterator

import pytest

from shared.idempotency import Record, Status
from shared.idempotency.records import Step
from shared.idempotency.scanning import Found, Placement, Query, RecordScan, find_in, first_of
from shared.idempotency.testing import a_record
from tests.contract.scans import BUSINESS, SHELVES, Shelf

pytestmark = pytest.mark.integration


@pytest.fixture(params=SHELVES)
async def shelf(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with SHELVES[request.param](request) as opened:
        yield opened


def a_finished(key: str | None = None, **fields: object) -> Record:
    finished = {"status": Status.COMPLETED, "finished_at": 100.0, "expires_at": 200.0}
    return a_record(key, **{**finished, **fields})


async def all_of(scan: RecordScan, query: Query) -> list[Found]:
    return [found async for page in scan.pages(query) for found in page.records]


async def the(shelf: Shelf, record: Record) -> Found:
    await shelf.put(record)
    found = await shelf.scan.find(record.consumer, record.key)
    assert found is not None
    return found


async def test_given_nothing_was_ever_kept_then_there_is_nothing_and_nothing_is_made(
    shelf: Shelf,
) -> None:
    assert await all_of(shelf.scan, Query()) == []
    assert await shelf.scan.find("contract", "o-1") is None


async def test_given_more_than_a_page_then_each_record_comes_once(shelf: Shelf) -> None:
    records = [a_finished() for _ in range(7)]
    for record in records:
        await shelf.put(record)

    pages = [page async for page in shelf.scan.pages(Query(page_size=3))]

    assert sorted(f.record.key for page in pages for f in page.records) == sorted(
        record.key for record in records
    )
    assert len(pages) >= 3
    assert all(len(page.records) <= 3 for page in pages)
    assert pages[-1].resume is None
    first, resume = pages[0], pages[0].resume
    assert resume is not None
    rest = [page async for page in shelf.scan.pages(Query(page_size=3), resume=resume)]
    again = {f.record.key for page in rest for f in page.records}
    assert again == {r.key for r in records} - {f.record.key for f in first.records}


async def test_given_records_of_several_kinds_then_a_query_finds_those_it_names(
    shelf: Shelf,
) -> None:
    done, failed = a_finished(), a_finished(status=Status.FAILED, expires_at=300.0)
    running, other = a_record(), a_record().replaced(consumer="contract2")
    for record in (done, failed, running, other):
        await shelf.put(record)

    async def keys(query: Query) -> set[str]:
        return {found.record.key for found in await all_of(shelf.scan, query)}

    assert await keys(Query()) == {done.key, failed.key, running.key, other.key}
    assert await keys(Query(consumer="contract")) == {done.key, failed.key, running.key}
    assert await keys(Query(consumer="contract", statuses=frozenset({Status.IN_PROGRESS}))) == {
        running.key
    }
    both = frozenset({Status.COMPLETED, Status.FAILED})
    assert await keys(Query(statuses=both, expired_by=250.0)) == {done.key}
    assert await keys(Query(older_than=3600.0)) == set()
    assert await keys(Query(older_than=-60.0)) == await keys(Query())


async def test_given_a_hostile_consumer_or_key_then_a_query_says_what_it_means(
    shelf: Shelf,
) -> None:
    consumer = "it's; a ' or '1' eq '1"
    record = a_record(f"a/b?c#d' or {uuid.uuid4().hex}").replaced(consumer=consumer)
    await shelf.put(record)
    await shelf.put(a_record())

    found = await all_of(shelf.scan, Query(consumer=consumer))
    by_key = await shelf.scan.find(consumer, record.key)

    assert [each.record.key for each in found] == [record.key]
    assert by_key is not None
    assert by_key.record.key == record.key
    assert await shelf.scan.find("contract", record.key) is None


async def test_what_is_found_is_the_record_its_age_and_where_it_lies(shelf: Shelf) -> None:
    record = a_record(
        attempt=3,
        fingerprint="json1:00",
        steps=(Step(name="charge", begun_at=1.0, deadline=2.0),),
        first_sequence_number=2**53 + 1,
        trace_parent=f"00-{'a' * 32}-{'b' * 16}-01",
    )

    found = await the(shelf, record)

    assert found.record.replaced(extra={}) == record
    assert 0.0 <= found.age < 30.0
    assert found.source == shelf.scan.source
    assert found.placement is shelf.scan.placement


async def test_given_a_record_as_it_was_found_then_it_is_replaced_and_what_lies_beside_it_stays(
    shelf: Shelf,
) -> None:
    found = await the(shelf, a_record())

    written = await shelf.scan.replace(found, found.record.replaced(status=Status.QUARANTINED))

    assert written is not None
    again = await shelf.scan.find("contract", found.record.key)
    assert again is not None
    assert again.record.status is Status.QUARANTINED
    assert again.etag == written.etag
    document = await shelf.raw(found.record.key)
    if found.placement is Placement.BESIDE_DATA:
        assert document["total"] == BUSINESS["total"]
        assert "sku" in str(document["lines"])
        assert {k: v for k, v in again.record.extra.items() if k in BUSINESS} == BUSINESS


async def test_given_a_record_that_was_written_since_then_it_is_neither_replaced_nor_deleted(
    shelf: Shelf,
) -> None:
    seen = await the(shelf, a_record())
    assert await shelf.scan.replace(seen, seen.record.replaced(attempt=2))

    assert await shelf.scan.replace(seen, seen.record.replaced(attempt=9)) is None
    assert await shelf.scan.delete(seen) is False
    now = await shelf.scan.find("contract", seen.record.key)
    assert now is not None
    assert now.record.attempt == 2
    assert await shelf.scan.delete(now) is True
    assert await shelf.scan.delete(now) is False


async def test_given_a_finished_record_on_cosmos_then_only_it_expires(
    request: pytest.FixtureRequest,
) -> None:
    async with SHELVES["cosmos-dedicated"](request) as shelf:
        found = await the(shelf, a_finished())
        assert (await shelf.raw(found.record.key))["ttl"] == 100

        await shelf.scan.replace(found, found.record.replaced(status=Status.QUARANTINED))

        assert "ttl" not in await shelf.raw(found.record.key)


async def test_given_a_limit_then_no_more_is_shown_and_it_is_said_that_there_is_more(
    shelf: Shelf,
) -> None:
    for _ in range(5):
        await shelf.put(a_record())
    query = Query(page_size=2)

    found, more = await first_of([shelf.scan], query, limit=3, most_pages=50)
    assert (len(found), more) == (3, True)
    found, more = await first_of([shelf.scan], query, limit=5, most_pages=50)
    assert (len(found), more) == (5, False)
    found, more = await first_of([shelf.scan], query, limit=5, most_pages=1)
    assert (len(found), more) == (2, True)


async def test_given_several_places_then_the_one_that_has_the_record_is_found(
    shelf: Shelf, request: pytest.FixtureRequest
) -> None:
    async with SHELVES["memory"](request) as empty:
        found = await the(shelf, a_record())

        hit = await find_in([empty.scan, shelf.scan], "contract", found.record.key)

        assert hit is not None
        assert hit[0] is shelf.scan
        assert await find_in([empty.scan, shelf.scan], "contract", "another") is None
