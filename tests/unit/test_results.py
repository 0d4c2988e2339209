"""Results: the first caller and the replayed one are given the same, of the same type."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    Delivery,
    Outcome,
    Policy,
    ResultCodec,
)
from shared.idempotency.results import kept
from shared.idempotency.stores.memory import MemoryStore


@dataclasses.dataclass(frozen=True)
class Receipt:
    number: str
    total: Decimal
    lines: tuple[str, ...] = ()


class Struct(msgspec.Struct):
    at: datetime


class Pair(NamedTuple):
    a: int
    b: str


class Colour(Enum):
    RED = "red"


VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (bool, False),
    (int, 0),
    (str, ""),
    (float, 0.0),
    (bytes, b""),
    (list[int], []),
    (dict[str, int], {}),
    (tuple[int, ...], ()),
    (Decimal, Decimal("0.00")),
    (bytes, b"\x00\xff"),
    (Decimal, Decimal("12.340")),
    (datetime, datetime(2026, 3, 29, 2, 30, 0, 5, tzinfo=UTC)),
    (date, date(2024, 2, 29)),
    (timedelta, timedelta(seconds=1.5)),
    (UUID, UUID(int=7)),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (Receipt, Receipt("r-1", Decimal("9.90"), ("a", "b"))),
    (list[Receipt], [Receipt("r-1", Decimal(1))]),
    (Struct, Struct(datetime(2026, 1, 1, tzinfo=UTC))),
    (Pair, Pair(1, "b")),
    (Colour, Colour.RED),
    (int | None, None),
    (Receipt | None, Receipt("r", Decimal("0"))),
    (str, "\U0001f600 \x00 é"),
]


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=repr)
@pytest.mark.parametrize("memory", [0.0, 10.0], ids=["store", "memory"])
async def test_falsy_and_typed_results_are_equal_for_the_first_and_the_replayed_caller(
    type_: Any, value: Any, memory: float
) -> None:
    consumer = Consumer("c", MemoryStore(), policy=Policy(memory=memory))
    codec: ResultCodec[Any] = ResultCodec(type_)

    async def work() -> Any:
        return value

    first = await consumer.handle(Delivery(key="k"), work, codec)
    replayed = await consumer.handle(Delivery(key="k"), work, codec)
    assert (first.outcome, replayed.outcome) == (Outcome.PROCESSED, Outcome.DUPLICATE)
    assert first.result == value
    assert replayed.result == value
    assert type(first.result) is type(replayed.result) is type(value)
    assert first.result_kept
    assert replayed.result_kept


async def test_without_an_annotation_both_callers_get_the_json_form() -> None:
    consumer = Consumer("c", MemoryStore())
    codec: ResultCodec[Any] = ResultCodec()

    async def work() -> Receipt:
        return Receipt("r-1", Decimal(1), ("a",))

    first = await consumer.handle(Delivery(key="k"), work, codec)
    replayed = await consumer.handle(Delivery(key="k"), work, codec)
    assert first.result == replayed.result == {"number": "r-1", "total": "1", "lines": ["a"]}


async def test_a_result_no_longer_of_the_handlers_type_is_a_duplicate_without_result() -> None:
    """A deploy that changes what a handler returns must not turn duplicates into failures."""
    consumer = Consumer("c", MemoryStore())

    async def text() -> str:
        return "text"

    async def number() -> int:
        raise AssertionError("ran twice")

    await consumer.handle(Delivery(key="k"), text, ResultCodec[str](str))
    again = await consumer.handle(Delivery(key="k"), number, ResultCodec[int](int))
    assert again.outcome is Outcome.DUPLICATE
    assert again.result is None
    assert not again.result_kept


def test_a_type_that_cannot_be_kept_is_refused_when_the_handler_is_protected() -> None:
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        ResultCodec[Any](dict[tuple[int, int], int] | list[int] | tuple[int, ...])


class Unkeepable:
    pass


def _endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize("result", [Unkeepable(), {1j: 1}, "\ud800", _endless()], ids=type)
def test_a_result_of_no_kind_that_can_be_kept_says_so(result: Any) -> None:
    text, cause = kept(result, ResultCodec[Any](), 1000)
    assert text is None
    assert "of no kind that can be kept" in cause


def test_a_result_of_another_type_than_declared_is_not_kept() -> None:
    assert kept("five", ResultCodec[Any](int), 1000).text is None


def test_the_limit_counts_bytes_not_characters() -> None:
    assert kept("é" * 10, ResultCodec[str](str), 22).text == '"' + "é" * 10 + '"'
    text, cause = kept("é" * 10, ResultCodec[str](str), 21)
    assert text is None
    assert "22 bytes, more than 21" in cause
