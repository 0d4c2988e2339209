"""Rows of a file that is read piece by piece: where each begins, what it says. No I/O.

A row is known by the line it begins in, counted from 1, and a file can be gone on with from any row.
"""

import csv
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from .idempotency import MalformedContent, PermanentFailure

type Format = Literal["csv", "jsonl"]

LARGEST_ROW: Final = 256 * 1024
"""Bytes: more than any order may have."""
PIECE: Final = 64 * 1024
"""Bytes that are looked at in one go."""
LARGEST_PIECE: Final = 2 * LARGEST_ROW
"""Bytes in which a row is always found, or known to be too large."""
_SUFFIXES: Final[dict[str, Format]] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_COLUMNS: Final = ("order_id", "customer_id", "currency", "sku", "quantity", "unit_price")
_DIGITS: Final = 19
_MARK: Final = b"\xef\xbb\xbf"
"""What some programs write before UTF-8."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where the next row begins: byte and line.

    ``columns``: where a CSV file has those that are needed, and how many it has; once they are read.
    """

    offset: Annotated[int, Meta(ge=0)] = 0
    line: Annotated[int, Meta(ge=1)] = 1
    columns: tuple[int, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the order in it as JSON, or why there is none. ``raw`` is the row as it stands there."""

    line: int
    raw: bytes
    body: bytes = b""
    reason: str = ""
    description: str = ""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows, and where the one after them begins.

    ``in_row``: the last one is too large, and goes on until the end of its line, which is yet to be found.
    """

    rows: tuple[Row, ...]
    following: Position
    in_row: bool = False


def format_of(name: str) -> Format:
    """The format of a file by the end of its name; raises MalformedContent for another one."""
    for suffix, format_ in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return format_
    raise MalformedContent(
        f"a file's name must end in {', '.join(_SUFFIXES)}: it tells the format",
        reason="UnknownFormat",
    )


def rows_in(piece: bytes, position: Position, format_: Format, *, at_end: bool, most: int) -> Rows:
    """The whole rows at the beginning of a piece of a file that begins at ``position``.

    ``at_end``: nothing follows the piece. A pure function: the same piece gives the same rows, whoever
    reads it and however often. Raises PermanentFailure for a CSV file whose first row lacks columns.
    """
    found: list[Row] = []
    offset, line, columns = position.offset, position.line, position.columns
    start = len(_MARK) if offset == 0 and piece.startswith(_MARK) else 0
    in_row = False
    while len(found) < most and start < len(piece):
        end = _end_of_row(piece, start, format_, at_end=at_end)
        if end is None:
            if len(piece) - start < LARGEST_ROW and not at_end:
                break  # the rest of it is in the next piece
            # too large, or a quotation mark without its partner: of that row, its first line alone
            newline = piece.find(b"\n", start)
            in_row = newline < 0 and not at_end
            end = len(piece) if newline < 0 else newline + 1
            found.append(_broken(line, piece[start:end], in_row=in_row))
        else:
            raw = piece[start:end].rstrip(b"\r\n")
            if not raw.strip():
                pass
            elif format_ == "csv" and not columns:
                columns = _columns_in(raw)
            else:
                found.append(_row(line, raw, format_, columns))
        line += piece.count(b"\n", start, end)
        start = end
    following = Position(offset=offset + start, line=line, columns=columns)
    return Rows(rows=tuple(found), following=following, in_row=in_row)


def _end_of_row(piece: bytes, start: int, format_: Format, *, at_end: bool) -> int | None:
    """Where the row ends that begins at ``start``, its newline included; None when it has no end there."""
    quotes = 0
    look_from = start
    while (newline := piece.find(b"\n", look_from, start + LARGEST_ROW)) >= 0:
        quotes += piece.count(b'"', look_from, newline)
        if format_ == "jsonl" or quotes % 2 == 0:
            return newline + 1
        look_from = newline + 1
    quotes += piece.count(b'"', look_from)
    whole = at_end and len(piece) - start < LARGEST_ROW
    return len(piece) if whole and (format_ == "jsonl" or quotes % 2 == 0) else None


def _broken(line: int, raw: bytes, *, in_row: bool) -> Row:
    if in_row or len(raw) >= LARGEST_ROW:
        why = f"the row has more than {LARGEST_ROW} bytes"
        return Row(line=line, raw=b"", reason="RowTooLarge", description=why)
    why = "a quotation mark is opened here and not closed"
    return Row(line=line, raw=raw.rstrip(b"\r\n"), reason="UnclosedQuote", description=why)


def _columns_in(raw: bytes) -> tuple[int, ...]:
    try:
        columns = [name.strip() for name in next(_fields(raw), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise PermanentFailure("MalformedHeader", f"the first row: {error}") from error
    if missing := [name for name in _COLUMNS if name not in columns]:
        raise PermanentFailure(
            "MissingColumns", f"the first row names the columns, and has no {', '.join(missing)}"
        )
    return (*map(columns.index, _COLUMNS), len(columns))


def _row(line: int, raw: bytes, format_: Format, columns: tuple[int, ...]) -> Row:
    if format_ == "jsonl":
        return Row(line=line, raw=raw, body=raw)
    try:
        fields = next(_fields(raw), [])
    except (UnicodeDecodeError, csv.Error) as error:
        return Row(line=line, raw=raw, reason="MalformedRow", description=str(error))
    *needed, count = columns
    if len(fields) != count:
        why = f"the row has {len(fields)} fields, the first row names {count}"
        return Row(line=line, raw=raw, reason="WrongNumberOfFields", description=why)
    named = {name: fields[place] for name, place in zip(_COLUMNS, needed, strict=True)}
    return Row(line=line, raw=raw, body=_order_of(named))


def _fields(raw: bytes) -> Iterator[list[str]]:
    return csv.reader([raw.decode()], strict=True)


def _order_of(named: dict[str, str]) -> bytes:
    """A row as the order it is: of one line. What is no number is left for the order's own check."""
    quantity = named["quantity"].strip()
    is_number = quantity.isascii() and quantity.isdecimal() and len(quantity) < _DIGITS
    line = {
        "sku": named["sku"],
        "quantity": int(quantity) if is_number else quantity,
        "unit_price": named["unit_price"].strip(),
    }
    order = {name: named[name] for name in ("order_id", "customer_id", "currency")}
    return msgspec.json.encode({**order, "lines": [line]})
