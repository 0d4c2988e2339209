"""Imports: a file of orders in a blob, row by row through the handler that every order goes through.

A row's key is its order's id, and the order's entity its marker: whichever rows are done again, after a
crash or in another import, are duplicates. So nothing here makes a row happen once; what is recorded is
how far an import has come, so that it need not begin again.

An import runs in slices, each one message and one record. A slice runs in chunks, each one recorded step:
its rows are a pure function of the blob's content and of where it begins. When its time is up, a slice
sends the next one its place, and ends.
"""

import asyncio
import functools
import hashlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from .blobs import Blobs
from .idempotency import (
    Delivery,
    DeliveryRejected,
    MalformedContent,
    Outcome,
    Protected,
    ResultCodec,
    TransientFailure,
    current_attempt,
    joined,
)
from .idempotency.fingerprint import canonical_json
from .import_messages import ERRORS, ImportMessage, Progress, Tally
from .orders import Name, parsed
from .rows import LARGEST_PIECE, PIECE, Format, Position, Row, Rows, format_of, rows_in

ROWS: Final = 200
"""In one chunk, at the most."""
AT_ONCE: Final = 16
"""Rows in work: an order is a partition of its own, so no transaction takes two of them."""
_CHUNKS: Final = 24
"""In one slice, at the most: its record must hold them all."""

_log = logging.getLogger("app.imports")

type Send = Callable[[bytes], Awaitable[None]]
"""Sends a message to the queue of imports."""

type PlaceOrder = Callable[[bytes], None]
"""The handler of an order's JSON, for a unit of work."""


class _OrderId(msgspec.Struct):
    order_id: Name


class _Aside(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bad row, as it is written down beside the blob."""

    line: int
    reason: str
    description: str
    row: str = ""


class Importer:
    """Imports orders out of one container.

    ``orders`` is the consumer of orders, ``place`` its handler. ``slice_seconds``: for how long a slice
    begins new chunks; ``chunk_seconds``: the deadline of one.
    """

    def __init__(
        self,
        blobs: Blobs,
        orders: Protected,
        place: PlaceOrder,
        send: Send,
        *,
        slice_seconds: float,
        chunk_seconds: float,
        chunk_rows: int = ROWS,
    ) -> None:
        self._blobs = blobs
        self._orders = orders
        self._place = place
        self._send = send
        self._slice_seconds = slice_seconds
        self._chunk_seconds = chunk_seconds
        self._chunk_rows = chunk_rows

    async def handle(self, asked: ImportMessage) -> Progress:
        """Run one slice, or have the first one run; within an attempt of the import's own consumer.

        Raises PermanentFailure when the blob is not, or is no longer, what was asked for, and
        TransientFailure or StoreUnavailable when rows could not be done now: what is recorded stays.
        """
        format_ = format_of(asked.blob)
        if asked.etag is None:
            # sent twice, after a crash, it is one slice all the same
            current_attempt().rule_out_effects()
            etag = await self._blobs.etag(asked.blob)
            await self._send(_encoded(msgspec.structs.replace(asked, etag=etag)))
            return asked.progress
        progress = await self._slice(asked, format_)
        last = functools.partial(self._finish if progress.ended else self._go_on, asked, progress)
        await current_attempt().step("end", last, deadline=self._chunk_seconds, last=True)
        return progress

    async def _slice(self, asked: ImportMessage, format_: Format) -> Progress:
        until = time.monotonic() + self._slice_seconds
        progress = msgspec.structs.replace(asked.progress, yields=False)
        attempt = current_attempt()
        # an attempt before this one may have begun the first chunk that is not recorded
        seen = attempt.number > 1
        ran_here = False
        for number in itertools.count(1):

            async def chunk(
                before: Progress = progress, number: int = number, seen: bool = seen
            ) -> Progress:
                nonlocal ran_here
                done = await self._chunk(asked, format_, before, seen=seen)
                ran_here = True
                # recorded with the chunk, so that a repetition of this slice ends where it ended
                goes_on = number < _CHUNKS and time.monotonic() < until
                return msgspec.structs.replace(done, yields=not (done.ended or goes_on))

            before = progress.tally
            progress = await attempt.step(
                f"chunk-{number:02}", chunk, deadline=self._chunk_seconds, result_type=Progress
            )
            if ran_here:
                seen = (
                    progress.tally.duplicates - before.duplicates
                    > progress.tally.placed - before.placed
                )
            _log.info(
                "import of %s: %d rows: %d placed, %d duplicates, %d set aside",
                asked.blob,
                progress.tally.rows,
                progress.tally.placed,
                progress.tally.duplicates,
                progress.tally.set_aside,
            )
            if progress.ended or progress.yields:
                break
        return progress

    async def _chunk(
        self, asked: ImportMessage, format_: Format, progress: Progress, *, seen: bool
    ) -> Progress:
        """The rows of one chunk. ``seen``: they were probably placed before, and are looked for first."""
        start = progress.position
        found, ended = await self._found(asked, start, format_)
        following = found.following
        if found.in_row:
            following, ended = await self._next_line(asked, following)
        outcomes = await self._each(found.rows, seen=seen)
        bad = [each for each in outcomes if isinstance(each, _Aside)]
        if bad:
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in bad)
            part = f"{_parts(asked)}{start.offset:020}"
            await self._blobs.stage(asked.blob + ERRORS, part, lines)
        tally = Tally(
            placed=progress.tally.placed + outcomes.count(Outcome.PROCESSED),
            duplicates=progress.tally.duplicates + outcomes.count(Outcome.DUPLICATE),
            set_aside=progress.tally.set_aside + len(bad),
        )
        return Progress(position=following, tally=tally, ended=ended)

    async def _found(
        self, asked: ImportMessage, start: Position, format_: Format
    ) -> tuple[Rows, bool]:
        """The rows that begin there, and whether they are the last: the same whoever asks, and when."""
        for length in (PIECE, LARGEST_PIECE):
            data, at_end = await self._blobs.read(asked.blob, str(asked.etag), start.offset, length)
            found = rows_in(data, start, format_, at_end=at_end, most=self._chunk_rows)
            if found.following.offset > start.offset:
                break
        return found, at_end and found.following.offset == start.offset + len(data)

    async def _next_line(self, asked: ImportMessage, within: Position) -> tuple[Position, bool]:
        """The beginning of the line after a row that is too large to be kept, and whether it is the end."""
        offset = within.offset
        while True:
            piece = await self._blobs.read(asked.blob, str(asked.etag), offset, LARGEST_PIECE)
            newline = piece.data.find(b"\n")
            offset += len(piece.data) if newline < 0 else newline + 1
            if newline >= 0 or piece.at_end:
                there = msgspec.structs.replace(within, offset=offset, line=within.line + 1)
                return there, piece.at_end and newline in (-1, len(piece.data) - 1)

    async def _each(self, rows: Iterable[Row], *, seen: bool) -> list[Outcome | _Aside]:
        """What becomes of each row, in their order; of several with one order's id the first comes first."""
        outcomes: dict[int, Outcome | _Aside] = {}
        by_order: dict[str, list[Row]] = {}
        for row in rows:
            try:
                by_order.setdefault(_order_id(row), []).append(row)
            except DeliveryRejected as error:
                outcomes[row.line] = _aside(row, error.reason, str(error))

        async def work(waiting: "Iterable[list[Row]]") -> None:
            for of_one_order in waiting:
                for row in of_one_order:
                    outcomes[row.line] = await self._row(row, seen=seen)

        waiting = iter(by_order.values())
        workers = [asyncio.create_task(work(waiting)) for _ in range(min(AT_ONCE, len(by_order)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [outcomes[line] for line in sorted(outcomes)]

    async def _row(self, row: Row, *, seen: bool) -> Outcome | _Aside:
        async def place() -> None:
            self._place(row.body)

        try:
            delivery = Delivery(
                key=_order_id(row),
                fingerprint=canonical_json(row.body),
                trigger="import",
                redelivered=seen,
                body=row.body,
            )
            handled = await self._orders.handle(delivery, place, _NOTHING)
        except DeliveryRejected as error:
            return _aside(row, error.reason, str(error))
        match handled.outcome:
            case Outcome.PROCESSED | Outcome.DUPLICATE if not handled.failed:
                return handled.outcome
            case Outcome.IN_FLIGHT:
                raise TransientFailure(f"line {row.line}: another attempt is still in flight")
        return _aside(row, handled.reason, handled.description)

    async def _go_on(self, asked: ImportMessage, progress: Progress) -> None:
        await self._send(_encoded(msgspec.structs.replace(asked, progress=progress)))

    async def _finish(self, asked: ImportMessage, progress: Progress) -> None:
        await self._blobs.put_together(asked.blob + ERRORS, _parts(asked))


_NOTHING: Final[ResultCodec[None]] = ResultCodec(type(None))


def _order_id(row: Row) -> str:
    if row.reason:
        raise MalformedContent(row.description, reason=row.reason)
    return parsed(row.body, _OrderId).order_id


def _aside(row: Row, reason: str, description: str) -> _Aside:
    return _Aside(row.line, reason, description, row.raw.decode(errors="backslashreplace"))


def _parts(asked: ImportMessage) -> str:
    """What the names of this import's parts begin with: none of another content, or run, is among them."""
    identity = joined(asked.blob, asked.etag, asked.run)
    return hashlib.sha256(identity.encode()).hexdigest()[:16] + "-"


def _encoded(asked: ImportMessage) -> bytes:
    return msgspec.json.encode(asked)
