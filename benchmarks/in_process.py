"""What a call costs in the process, without any store: beside Powertools for AWS Lambda, in the same run.

Both get the same dictionary, have its id for a key, compare its content, run the same handler and keep its
result, over a dictionary. What is left is each library's own work. Powertools is synchronous, this module
is not: its figure has the event loop in it.
"""

import asyncio
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

from shared.idempotency import Consumer, Policy
from shared.idempotency.direct import idempotent
from shared.idempotency.stores.memory import MemoryStore

from .frame import Figures, in_turn

RESULT = {"status": "charged", "payment_id": "p-123", "amount": "59.94"}
SIZES = {"1 KB": 1024, "64 KB": 65536}


def order(number: int, size: int) -> dict[str, Any]:
    """An order of about so many bytes of JSON: a few fields, then lines as many as fit."""
    content: dict[str, Any] = {
        "order_id": f"order-{number:010d}",
        "customer": {"id": f"c-{number % 97}", "tags": ["a", "b", "c"]},
        "lines": [],
    }
    line = {"sku": "sku-123456", "quantity": 3, "unit_price": "4.90", "note": "gift wrapped"}
    room = size - len(json.dumps(content))
    content["lines"] = [line] * max(1, room // (len(json.dumps(line)) + 2))
    return content


class Ours:
    """This module: a two-phase consumer, the content of a call compared, no memory of the process."""

    def __init__(self, *, evidence: bool) -> None:
        consumer = Consumer("bench", MemoryStore(), policy=Policy(memory=0, evidence=evidence))

        @idempotent(consumer, key=lambda order: order["order_id"], content=lambda order: order)
        async def charge(order: dict[str, Any]) -> dict[str, Any]:
            return RESULT

        self._charge = charge

    def timed(self, orders: list[dict[str, Any]]) -> float:
        """Microseconds per call."""

        async def all_of_them() -> float:
            began = time.perf_counter()
            for each in orders:
                await self._charge(each)
            return (time.perf_counter() - began) / len(orders) * 1e6

        return asyncio.run(all_of_them())


class Powertools:
    """Powertools with a layer of a dictionary, the payload validated, no cache of its own."""

    def __init__(self) -> None:
        from aws_lambda_powertools.utilities.idempotency import (
            IdempotencyConfig,
            idempotent_function,
        )

        from .powertools_layer import DictionaryLayer

        config = IdempotencyConfig(
            event_key_jmespath="order_id",
            payload_validation_jmespath="@",
            raise_on_no_idempotency_key=True,
        )

        @idempotent_function(
            data_keyword_argument="order", persistence_store=DictionaryLayer(), config=config
        )
        def charge(*, order: dict[str, Any]) -> dict[str, Any]:
            return RESULT

        self._charge = charge

    def timed(self, orders: list[dict[str, Any]]) -> float:
        """Microseconds per call."""
        began = time.perf_counter()
        for each in orders:
            self._charge(order=each)
        return (time.perf_counter() - began) / len(orders) * 1e6


def measure(*, quick: bool, told: Callable[[str], None]) -> Figures:
    """Fresh calls and duplicates, small and large; the goal is half of Powertools' time."""
    warnings.simplefilter("ignore")
    calls, rounds = (20, 2) if quick else (400, 9)
    makers: dict[str, Callable[[], Any]] = {
        "this module": lambda: Ours(evidence=False),
        "this module, with evidence": lambda: Ours(evidence=True),
    }
    notes = [
        "evidence: digests of each field, which let a mismatch name what changed; on by default. A function "
        "called directly keeps none unless its content is bytes",
        "the event loop is in ours: two tasks a call, the handler's and its heartbeat's",
    ]
    if importlib.util.find_spec("aws_lambda_powertools") is None:
        notes.append("aws-lambda-powertools is not installed: it was left out")
    else:
        makers["Powertools"] = Powertools
    figures, ratios = {}, {}
    for size, length in SIZES.items():
        count = calls if size == "1 KB" else max(10, calls // 10)
        for kind in ("fresh", "duplicate"):
            told(f"{size}, {kind}")
            contestants = {
                f"{name}, {size}, {kind}": _contestant(maker, count, length, fresh=kind == "fresh")
                for name, maker in makers.items()
            }
            found = in_turn(contestants, rounds=rounds, unit="µs", told=told)
            figures.update(found)
            peer = found.get(f"Powertools, {size}, {kind}")
            if peer is not None:
                mine = found[f"this module, {size}, {kind}"]
                ratios[f"{size}, {kind}: of Powertools' time"] = round(mine.median / peer.median, 2)
    return Figures(
        "Cost of a call in the process",
        figures,
        ratios,
        dict.fromkeys(ratios, "<= 0.5"),
        notes,
    )


def _contestant(
    make: Callable[[], Any], count: int, length: int, *, fresh: bool
) -> Callable[[], float]:
    orders = [order(number, length) for number in range(count)]

    def once() -> float:
        contestant = make()
        if not fresh:
            contestant.timed(orders)
        return float(contestant.timed(orders))

    return once
