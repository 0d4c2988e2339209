"""Rows of a file: the same ones whatever pieces it is read in, and a reason for each that is none."""

import csv
import io
import json
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import MalformedContent, PermanentFailure
from shared.rows import LARGEST_ROW, Format, Position, Row, format_of, rows_in

HEADER = "order_id,customer_id,currency,sku,quantity,unit_price"


def all_rows(
    data: bytes,
    format_: Format = "jsonl",
    *,
    most: int = 1000,
    piece: Callable[[], int] = lambda: 10**9,
) -> list[Row]:
    """Every row of a file, read in pieces from where the last one ended."""
    rows: list[Row] = []
    position, length = Position(), 0
    while True:
        length = max(piece(), length)
        start = position.offset
        found = rows_in(
            data[start : start + length],
            position,
            format_,
            at_end=start + length >= len(data),
            most=most,
        )
        assert not found.in_row
        rows += found.rows
        if found.following.offset == len(data):
            return rows
        # without a whole row in it, a larger piece is looked at
        length = length * 2 + 1 if found.following.offset == start else 0
        position = found.following


def test_given_json_lines_then_each_is_a_row_with_its_line() -> None:
    rows = all_rows(b'{"a": 1}\n\n  \r\n{"b": 2}\r\n{"c": 3}')

    assert [(row.line, row.body) for row in rows] == [
        (1, b'{"a": 1}'),
        (4, b'{"b": 2}'),
        (5, b'{"c": 3}'),
    ]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_given_nothing_then_there_are_no_rows(data: bytes) -> None:
    assert all_rows(data) == []


def test_given_a_mark_of_utf_8_then_it_is_no_part_of_the_first_row() -> None:
    assert [row.body for row in all_rows(b"\xef\xbb\xbf{}\n")] == [b"{}"]


def test_given_csv_then_a_row_is_an_order_of_one_line_whatever_the_order_of_its_columns() -> None:
    text = (
        "unit_price,note,quantity,sku,currency,customer_id,order_id\r\n"
        '4.90,"a, b\r\n""c""",2,tea,EUR,c-1,o-1\r\n'
        "1,,x,tea,EUR,c-1,o-2\n"
    )
    first, second = all_rows(text.encode(), "csv")

    assert json.loads(first.body) == {
        "order_id": "o-1",
        "customer_id": "c-1",
        "currency": "EUR",
        "lines": [{"sku": "tea", "quantity": 2, "unit_price": "4.90"}],
    }
    assert (first.line, second.line) == (2, 4), "a field may have lines of its own"
    assert json.loads(second.body)["lines"][0]["quantity"] == "x", "for the order's own check"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"o-1,c-1,EUR,tea,2", "WrongNumberOfFields"),
        (b'o-1,c-1,EUR,tea,2,"4.90" x', "MalformedRow"),
        (b"o-1,c-1,EUR,\xff,2,4.90", "MalformedRow"),
        (b'o-1,c-1,EUR,"tea,2,4.90', "UnclosedQuote"),
    ],
)
def test_given_a_bad_row_of_csv_then_it_says_why_and_the_next_one_is_read(
    row: bytes, reason: str
) -> None:
    good = b"o-2,c-1,EUR,tea,2,4.90"
    data = b"\n".join((HEADER.encode(), row, good, b""))

    bad, following = all_rows(data, "csv")

    assert (bad.line, bad.reason, bad.raw, bad.body) == (2, reason, row, b"")
    assert (following.line, following.reason) == (3, "")


def test_given_a_quantity_of_too_many_digits_then_it_is_left_as_it_is() -> None:
    [row] = all_rows(f"{HEADER}\no-1,c-1,EUR,tea,{'9' * 5000},1\n".encode(), "csv")

    assert json.loads(row.body)["lines"][0]["quantity"] == "9" * 5000


@pytest.mark.parametrize("first", [b"order_id,sku", b"\xff\xfe", b'"order_id'])
def test_given_a_first_row_without_the_columns_then_there_is_no_import(first: bytes) -> None:
    with pytest.raises(PermanentFailure):
        all_rows(first + b"\n1,2\n" + b"x" * LARGEST_ROW + b"\n", "csv")


def test_given_a_row_that_is_too_large_then_it_alone_is_set_aside() -> None:
    data = b"{}\n" + b"x" * (LARGEST_ROW + 1) + b"\n{}\n"

    rows = all_rows(data)

    assert [(row.line, row.reason) for row in rows] == [(1, ""), (2, "RowTooLarge"), (3, "")]
    assert rows[1].raw == b"", "nothing so large is kept"


def test_given_a_row_whose_end_is_beyond_the_piece_then_that_is_told() -> None:
    found = rows_in(b"x" * LARGEST_ROW, Position(), "jsonl", at_end=False, most=9)

    assert (found.in_row, found.following.offset) == (True, LARGEST_ROW)


TEXT = st.text(alphabet=string.ascii_letters + '",\n\r 0', max_size=12)


@given(
    fields=st.lists(st.tuples(TEXT, TEXT), max_size=12),
    terminator=st.sampled_from(["\n", "\r\n"]),
    most=st.integers(1, 5),
    data=st.data(),
)
def test_csv_gives_the_same_rows_in_whatever_pieces_it_is_read(
    fields: list[tuple[str, str]], terminator: str, most: int, data: st.DataObject
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=terminator)
    writer.writerow(HEADER.split(","))
    writer.writerows((f"o-{n}", a, "EUR", b, n, 1) for n, (a, b) in enumerate(fields))
    encoded = text.getvalue().encode()

    whole = all_rows(encoded, "csv")
    pieces = all_rows(
        encoded, "csv", most=most, piece=lambda: data.draw(st.integers(1, len(encoded)))
    )

    assert pieces == whole
    assert [json.loads(row.body)["customer_id"] for row in whole] == [a for a, _ in fields]
    lines = encoded.split(b"\n")
    for row in whole:
        assert lines[row.line - 1].startswith(json.loads(row.body)["order_id"].encode())


@given(
    lines=st.lists(st.text(alphabet='{}":a \r', max_size=9), max_size=15),
    most=st.integers(1, 5),
    data=st.data(),
)
def test_json_lines_give_the_same_rows_in_whatever_pieces_they_are_read(
    lines: list[str], most: int, data: st.DataObject
) -> None:
    encoded = "\n".join(lines).encode()

    whole = all_rows(encoded)
    pieces = all_rows(
        encoded, most=most, piece=lambda: data.draw(st.integers(1, max(1, len(encoded))))
    )

    assert pieces == whole
    assert [row.line for row in whole] == [
        number for number, line in enumerate(lines, 1) if line.strip()
    ]


@pytest.mark.parametrize(
    ("name", "format_"), [("a.csv", "csv"), ("a.JSONL", "jsonl"), ("b/a.ndjson", "jsonl")]
)
def test_the_name_tells_the_format(name: str, format_: Format) -> None:
    assert format_of(name) == format_


def test_another_format_is_refused() -> None:
    with pytest.raises(MalformedContent):
        format_of("orders.xlsx")
