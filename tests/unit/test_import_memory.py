"""The memory of an import does not grow with its file."""

import json
import os
import tracemalloc

import pytest

from shared.blobs import Piece
from shared.idempotency import Inbox, Outcome
from shared.idempotency.inbox_store import Operation, Refused, StoredDocument
from shared.imports import Importer
from tests.unit.imports import NAME, POLICY, Bench, MemoryBlobs, an_order, jsonl


class EndlessFile(MemoryBlobs):
    """A file that is nowhere: each piece of it is made when it is read."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.put(NAME, b"")

    @staticmethod
    def row(number: int) -> bytes:
        # all of one length, so that a row is found by its place
        return jsonl("not an order".ljust(150) if number % 1000 == 0 else _order(number))

    @property
    def size(self) -> int:
        return self.rows * len(self.row(1))

    async def read(self, name: str, etag: str, offset: int, length: int) -> Piece:
        width = len(self.row(1))
        first, last = offset // width, min(-(-(offset + length) // width), self.rows)
        data = b"".join(map(self.row, range(first, last)))[offset - first * width :][:length]
        return Piece(data, at_end=offset + len(data) >= self.size)


def _order(number: int) -> str:
    return json.dumps(an_order(f"o-{number:08}")).ljust(150)


class Forgetful:
    """Takes every transaction, and keeps none."""

    name = "forgetful"
    commits = 0

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        return None

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        self.commits += 1
        return None

    async def close(self) -> None: ...


async def peak_of(rows: int) -> tuple[int, int]:
    """The most memory an import takes, and the size of its file, both in bytes."""
    bench = Bench()
    bench.remembers = False
    file = EndlessFile(rows)
    orders = Forgetful()
    bench.importer = Importer(
        file,
        Inbox("process_order", orders, entity_is_marker=True, policy=POLICY),
        bench._place,
        bench._send,
        slice_seconds=60.0,
        chunk_seconds=20.0,
    )
    bench.blobs = file
    tracemalloc.start()
    try:
        handled = await bench.ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert handled.outcome is Outcome.PROCESSED
    assert handled.result is not None
    assert handled.result.tally.rows == rows
    assert orders.commits == handled.result.tally.placed
    return peak, file.size


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_given_many_rows_then_they_take_as_much_memory_as_few() -> None:
    """IMPORT_ROWS=100000 takes two minutes; what is bounded for 30,000 is bounded for them."""
    rows = int(os.environ.get("IMPORT_ROWS", "30000"))
    few, _ = await peak_of(5_000)
    many, size = await peak_of(rows)

    assert size > 100 * rows
    assert many < few * 1.5
