"""An import gives the same orders and bad rows, wherever it is interrupted, however often it is asked for."""

import json
from typing import Any

import pytest

from shared.idempotency import (
    DeliveryRejected,
    Outcome,
    Status,
    StoreUnavailable,
    TransientFailure,
)
from shared.idempotency.keys import joined
from shared.import_messages import ERRORS, ImportMessage, Progress, message_key
from shared.rows import LARGEST_PIECE, LARGEST_ROW
from tests.unit.imports import NAME, Bench, an_order, jsonl

ROWS = jsonl(
    an_order("o-1"),
    "no order",
    an_order("o-2"),
    an_order("o-3", currency="euro"),
    an_order("o-1"),
    an_order("o-2", customer_id="c-9"),
    an_order("o-4"),
    an_order("o-5"),
    an_order("o-6"),
)
PLACED = {f"o-{n}": an_order(f"o-{n}") for n in (1, 2, 4, 5, 6)}
BAD = [(2, "MalformedJson"), (4, "SchemaViolation"), (6, "PayloadMismatch")]


def bench(content: bytes = ROWS, **options: Any) -> Bench:
    made = Bench(**options)
    made.blobs.put(NAME, content)
    return made


def tally(result: Progress | None) -> tuple[int, int, int]:
    assert result is not None
    return result.tally.placed, result.tally.duplicates, result.tally.set_aside


def bad(imported: Bench) -> list[tuple[int, str]]:
    return [(each["line"], each["reason"]) for each in imported.blobs.errors()]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
@pytest.mark.parametrize("slice_seconds", [0.0, 60.0])
async def test_given_a_file_then_its_orders_are_placed_and_its_bad_rows_are_beside_it(
    chunk_rows: int, slice_seconds: float
) -> None:
    imported = bench(chunk_rows=chunk_rows, slice_seconds=slice_seconds)

    handled = await imported.ask()

    assert handled.outcome is Outcome.PROCESSED
    assert tally(handled.result) == (5, 1, 3)
    assert imported.placed() == PLACED
    assert bad(imported) == BAD
    [first, *_] = imported.blobs.errors()
    assert first["row"] == "no order"


async def test_given_one_id_with_two_contents_then_the_first_in_the_file_counts_however_slow_it_is() -> (
    None
):
    imported = bench(chunk_rows=100)
    imported.fails = {"o-2": TransientFailure("the store is busy")}

    handled = await imported.ask()

    assert imported.placed() == PLACED
    assert bad(imported) == BAD
    assert handled.outcome is Outcome.PROCESSED


@pytest.mark.parametrize("slice_seconds", [0.0, 60.0])
@pytest.mark.parametrize("at", ["o-1", "o-2", "o-4", "o-5", "o-6"])
async def test_given_a_failure_at_any_row_then_the_import_goes_on_and_ends_the_same(
    at: str, slice_seconds: float
) -> None:
    imported = bench(slice_seconds=slice_seconds)
    imported.fails = {at: LookupError("out of memory")}

    handled = await imported.ask()

    assert imported.placed() == PLACED
    assert bad(imported) == BAD
    assert handled.result is not None
    assert handled.result.tally.rows == 9


@pytest.mark.parametrize("line", range(1, 10))
async def test_given_a_slice_that_begins_at_any_row_then_the_rest_is_done_and_nothing_twice(
    line: int,
) -> None:
    imported = bench()
    await imported.ask()
    imported.ran.clear()
    offset = len(b"".join(ROWS.splitlines(keepends=True)[: line - 1]))
    progress = {"position": {"offset": offset, "line": line}}

    handled = await imported.ask(run="again", progress=progress)

    assert imported.placed() == PLACED
    assert handled.result is not None
    assert handled.result.tally.placed == 0
    assert handled.result.tally.rows == 10 - line
    assert bad(imported) == [each for each in BAD if each[0] >= line]


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("operation", ["insert", "replace"])
async def test_given_a_checkpoint_that_gets_lost_then_the_import_ends_the_same(
    operation: str, lost: Any
) -> None:
    imported = bench()
    imported.wire.lose = {operation: [lost]}

    handled = await imported.ask()

    assert imported.placed() == PLACED
    assert bad(imported) == BAD
    assert handled.result is not None
    assert handled.result.tally.rows == 9


async def test_given_a_store_that_is_down_for_rows_then_what_is_recorded_stays() -> None:
    imported = bench(jsonl(*(an_order(f"o-{n}") for n in range(9))))
    message = json.dumps({"blob": NAME, "etag": await imported.blobs.etag(NAME)}).encode()
    imported.fails = {"o-7": StoreUnavailable("down")}
    with pytest.raises(StoreUnavailable):
        await imported.deliver(message)
    reads = imported.blobs.reads
    imported.rows_wire.trips.clear()

    handled = await imported.deliver(message, again=True)

    assert tally(handled.result)[:2] == (7, 2), "two rows of the chunk were placed before"
    assert imported.blobs.reads == reads + 1, "only the chunk that was not recorded is read again"
    assert sorted(imported.rows_wire.trips) == ["commit", "read", "read", "read"]


# ---------------------------------------------------------------- again


async def test_given_the_same_message_again_then_it_is_a_duplicate_and_no_row_is_looked_at() -> (
    None
):
    imported = bench()
    first = await imported.ask()
    imported.rows_wire.trips.clear()

    again = await imported.ask()

    assert again.outcome is Outcome.DUPLICATE
    assert again.result == first.result
    assert imported.rows_wire.trips == []


async def test_given_another_run_then_all_rows_are_duplicates_and_the_bad_rows_are_the_same() -> (
    None
):
    imported = bench()
    await imported.ask()
    errors = imported.blobs.contents[NAME + ERRORS]
    imported.ran.clear()

    again = await imported.ask(run="2")

    assert tally(again.result) == (0, 6, 3)
    assert imported.placed() == PLACED
    assert imported.blobs.contents[NAME + ERRORS] == errors


async def test_given_the_same_file_under_another_name_then_all_rows_are_duplicates() -> None:
    imported = bench()
    await imported.ask()
    imported.blobs.put("copy.jsonl", ROWS)

    again = await imported.ask("copy.jsonl")

    assert tally(again.result) == (0, 6, 3)
    assert imported.placed() == PLACED


async def test_given_a_file_that_was_mended_then_its_bad_rows_are_gone() -> None:
    imported = bench()
    await imported.ask()
    imported.blobs.put(NAME, jsonl(*PLACED.values()))

    handled = await imported.ask()

    assert tally(handled.result) == (0, 5, 0)
    assert NAME + ERRORS not in imported.blobs.contents


async def test_given_two_imports_of_one_file_at_once_then_each_order_is_placed_once() -> None:
    imported = bench()
    other = Bench(stores=imported)
    imported.rows_wire.before = {"commit": other.ask}  # type: ignore[dict-item]

    await imported.ask(run="2")

    assert imported.placed() == PLACED
    assert bad(imported) == BAD


# ---------------------------------------------------------------- slices


async def test_given_no_time_then_each_slice_sends_the_next_before_it_is_done() -> None:
    imported = bench(slice_seconds=0.0)
    etag = await imported.blobs.etag(NAME)
    message = json.dumps({"blob": NAME, "etag": etag}).encode()

    handled = await imported.deliver(message)

    assert handled.result is not None
    assert (handled.result.yields, handled.result.tally.rows) == (True, 3)
    [following] = imported.queue
    at = ImportMessage.of(following).progress.position
    assert (at.line, at.offset) == (4, len(b"".join(ROWS.splitlines(keepends=True)[:3])))
    assert message_key(following, "x") == joined(NAME, etag, "1", str(at.offset))


async def test_given_a_slice_that_ends_after_sending_the_next_then_it_sends_the_same_again() -> (
    None
):
    imported = bench(slice_seconds=0.0)
    imported.after_sending = [LookupError("killed")]

    await imported.ask()

    first, again, *_ = imported.sent
    assert first == again
    assert imported.outcomes.count(Outcome.DUPLICATE) == 1, "of the slice that both messages are of"
    assert imported.placed() == PLACED
    assert bad(imported) == BAD


async def test_given_a_long_file_then_a_slice_is_bounded_however_much_time_it_has() -> None:
    imported = bench(jsonl(*(an_order(f"o-{n}") for n in range(60))), chunk_rows=1)

    handled = await imported.ask()

    assert tally(handled.result) == (60, 0, 0)
    assert len(imported.sent) == 2


async def test_given_a_thousand_columns_then_what_is_recorded_is_as_small_as_ever() -> None:
    header = ["order_id", "customer_id", "currency", "sku", "quantity", "unit_price"]
    more = [f"a-column-with-a-long-name-{n}" for n in range(1000)]
    rows = [[f"o-{n}", "c-1", "EUR", "tea", "2", "4.90", *["x"] * 1000] for n in range(40)]
    imported = Bench(chunk_rows=1)
    imported.blobs.put(
        "wide.csv", b"\n".join(",".join(row).encode() for row in [[*header, *more], *rows])
    )
    imported.fails = {"o-39": LookupError("once more")}

    handled = await imported.ask("wide.csv")

    assert tally(handled.result) == (40, 0, 0)
    assert all(len(message) < 500 for message in imported.sent)


# ---------------------------------------------------------------- trips


async def test_a_row_costs_one_trip_and_a_chunk_one_more() -> None:
    imported = bench(jsonl(*(an_order(f"o-{n}") for n in range(9))), chunk_rows=3)

    await imported.ask()

    assert imported.rows_wire.trips == ["commit"] * 9
    # the claim, three chunks; the end is recorded with the completion
    assert imported.wire.trips == ["insert"] + ["replace"] * 4
    assert imported.blobs.reads == 3


async def test_rows_of_a_file_that_was_imported_before_cost_one_read_each_after_the_first_chunk() -> (
    None
):
    imported = bench(jsonl(*(an_order(f"o-{n}") for n in range(9))), chunk_rows=3)
    await imported.ask()
    imported.rows_wire.trips.clear()

    await imported.ask(run="2")

    assert sorted(imported.rows_wire.trips) == ["commit"] * 3 + ["read"] * 9


# ---------------------------------------------------------------- what cannot be imported


async def test_given_a_blob_that_was_written_meanwhile_then_the_import_ends_and_says_so() -> None:
    imported = bench(slice_seconds=0.0)
    etag = await imported.blobs.etag(NAME)
    await imported.deliver(json.dumps({"blob": NAME, "etag": etag}).encode())
    imported.blobs.put(NAME, ROWS)

    handled = await imported.run()

    assert (handled.outcome, handled.reason) == (Outcome.FAILED, "BlobChanged")
    assert len(imported.placed()) == 2


async def test_given_no_such_blob_then_the_message_fails_for_good() -> None:
    handled = await bench().run(b'{"blob": "other.jsonl"}')

    assert (handled.outcome, handled.reason) == (Outcome.FAILED, "BlobNotFound")


async def test_given_a_message_without_an_etag_then_what_the_blob_holds_is_imported() -> None:
    imported = bench()

    await imported.run(json.dumps({"blob": NAME}).encode())

    assert imported.placed() == PLACED
    key = joined(NAME, await imported.blobs.etag(NAME), "1", "0")
    stored = await imported.records.read("import_orders", key)
    assert stored
    assert stored.record.status is Status.COMPLETED


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"blob": ""}',
        b'{"blob": "a.jsonl", "etag": ""}',
        b'{"blob": "a.jsonl", "etag": "\\"\\""}',
        b'{"blob": "a.jsonl", "file": "b"}',
        b'{"blob": "a.jsonl.errors.jsonl"}',
    ],
)
def test_a_message_that_is_none_is_rejected(body: bytes) -> None:
    with pytest.raises(DeliveryRejected):
        message_key(body, "m-1")


def test_an_etag_is_the_same_with_and_without_its_quotation_marks() -> None:
    keys = {
        message_key(json.dumps({"blob": NAME, "etag": etag}).encode(), "m-1")
        for etag in ('"0x1"', "0x1")
    }
    assert len(keys) == 1


async def test_given_another_format_then_the_message_is_rejected() -> None:
    imported = bench()
    imported.blobs.put("orders.xlsx", b"PK")

    with pytest.raises(DeliveryRejected, match=r"\.csv"):
        await imported.deliver(b'{"blob": "orders.xlsx", "etag": "0x1"}')


async def test_given_a_row_larger_than_any_piece_then_it_alone_is_set_aside() -> None:
    huge = "x" * (2 * LARGEST_PIECE + LARGEST_ROW)
    imported = bench(jsonl(an_order("o-1"), huge, an_order("o-2")))

    handled = await imported.ask()

    assert tally(handled.result) == (2, 0, 1)
    assert bad(imported) == [(2, "RowTooLarge")]
    assert list(imported.placed()) == ["o-1", "o-2"]


async def test_given_a_last_row_larger_than_any_piece_and_without_an_end_then_the_import_ends() -> (
    None
):
    imported = bench(jsonl(an_order("o-1")) + b"x" * (3 * LARGEST_PIECE))

    handled = await imported.ask()

    assert tally(handled.result) == (1, 0, 1)


async def test_given_an_empty_file_then_the_import_ends_at_once() -> None:
    handled = await bench(b"").ask()

    assert tally(handled.result) == (0, 0, 0)
