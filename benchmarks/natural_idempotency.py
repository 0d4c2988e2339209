"""What a version guard saves beside the two-phase form: ``python -m benchmarks.natural_idempotency``.

The same stock levels are handled by both on Table Storage (Azurite, in memory): round trips, stored
bytes and time per message. Trips and bytes are the same on any machine and in Azure; times are not.
"""
# ruff: noqa: T201 - a report to the terminal

import argparse
import asyncio
import itertools
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from azure.data.tables import EntityProperty
from azure.data.tables.aio import TableClient

from local.services.azurite import Azurite
from shared.idempotency import (
    Consumer,
    Delivery,
    Event,
    Outcome,
    Policy,
    Protected,
    ResultCodec,
    VersionGuard,
    apply_if_newer,
)
from shared.idempotency.events import StoreCalled
from shared.idempotency.stores.observed import ObservedStore
from shared.idempotency.stores.observed_state import ObservedStateStore
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_state import TableStateStore
from shared.inventory import StockLevel

CODEC: ResultCodec[None] = ResultCodec(None)
POLICY = Policy(memory=0)  # the small memory of a process would hide the trips


class Form(NamedTuple):
    """A consumer, its handler for a level, and the table where something is kept per message."""

    name: str
    consumer: Protected
    handler: Callable[[StockLevel], Callable[[], Awaitable[None]]]


class Measured(NamedTuple):
    """Averages per message; seconds at the median."""

    trips: float
    seconds: float
    outcomes: Counter[Outcome]


class Trips:
    """An observer that counts round trips."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: Event, /) -> None:
        self.count += isinstance(event, StoreCalled)


@asynccontextmanager
async def table(azurite: Azurite, name: str) -> AsyncIterator[TableClient]:
    async with TableClient.from_connection_string(azurite.connection_string, name) as client:
        await client.create_table()
        yield client


def level(article: int, version: int) -> StockLevel:
    return StockLevel(sku=f"sku-{article:05d}", warehouse="HAM-1", level=version, version=version)


async def measured(
    form: Form, levels: list[StockLevel], trips: Trips, *, redelivered: bool = False
) -> Measured:
    """Handle each level in a delivery of its own."""
    seconds: list[float] = []
    outcomes: Counter[Outcome] = Counter()
    before = trips.count
    for one in levels:
        key = f"{one.warehouse}.{one.sku}.{one.version}"
        delivery = Delivery(key=key, redelivered=redelivered, fingerprint="raw1:" + "0" * 64)
        began = time.perf_counter()
        handled = await form.consumer.handle(delivery, form.handler(one), CODEC)
        seconds.append(time.perf_counter() - began)
        outcomes[handled.outcome] += 1
    return Measured((trips.count - before) / len(levels), statistics.median(seconds), outcomes)


async def stored_bytes(client: TableClient) -> int:
    """What a table holds, by the formula of the service's documentation."""
    return sum([size_of(entity) async for entity in client.list_entities()])


def size_of(entity: Mapping[str, Any]) -> int:
    keys = 4 + 2 * (len(entity["PartitionKey"]) + len(entity["RowKey"]))
    values = {n: v for n, v in entity.items() if n not in ("PartitionKey", "RowKey")}
    return keys + sum(8 + 2 * len(name) + _size_of_value(value) for name, value in values.items())


def _size_of_value(value: Any) -> int:
    plain = value.value if isinstance(value, EntityProperty) else value
    match plain:
        case bool():
            return 1
        case str():
            return 4 + 2 * len(plain)
        case int() if not isinstance(value, EntityProperty):
            return 4
    return 8


def guarded(one: StockLevel) -> Callable[[], Awaitable[None]]:
    """The handler of the version guard."""

    async def work() -> None:
        apply_if_newer(one.state())

    return work


def upserting(table: TableClient, trips: Trips) -> Callable[[StockLevel], Any]:
    """The handler of the two-phase form: a plain upsert, so that the last to come wins."""

    def handler(one: StockLevel) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            state = one.state()
            trips.count += 1
            address = {"PartitionKey": state.id, "RowKey": state.id}
            await table.upsert_entity({**address, **state.following(None)})

        return work

    return handler


async def compare(azurite: Azurite, articles: int) -> None:
    """Send each article's levels 10 and 20, 20 again twice, and then 15, through both forms."""
    trips = Trips()
    first, second, late = (
        [level(article, version) for article in range(articles)] for version in (10, 20, 15)
    )
    cases = [
        ("of a new article", first, False),
        ("newer", second, False),
        ("re-sent", second, False),
        ("redelivered", second, True),
        ("overtaken", late, False),
    ]
    async with (
        table(azurite, "levels") as levels,
        table(azurite, "upserts") as upserts,
        table(azurite, "records") as records,
    ):
        states = ObservedStateStore(TableStateStore(levels), trips)
        store = ObservedStore(TableStore(records), trips)
        forms = [
            Form("version guard", VersionGuard("levels", states, policy=POLICY), guarded),
            Form("two-phase", Consumer("levels", store, policy=POLICY), upserting(upserts, trips)),
        ]
        print("| message | form | trips | ms (median) | outcome |")
        print("|---|---|---|---|---|")
        for (title, messages, redelivered), form in itertools.product(cases, forms):
            seen = await measured(form, messages, trips, redelivered=redelivered)
            milliseconds, outcome = seen.seconds * 1000, "/".join(seen.outcomes)
            print(f"| {title} | {form.name} | {seen.trips:g} | {milliseconds:.1f} | {outcome} |")
        handled = len(first) + len(second) + len(late)
        print(f"\nAfter {handled} messages that differ, about {articles} articles:\n")
        print("| form | documents | records | a message | levels that are not the newest |")
        print("|---|---|---|---|---|")
        for name, documents, kept in (
            ("version guard", levels, 0),
            ("two-phase", upserts, await stored_bytes(records)),
        ):
            wrong = len([e async for e in documents.list_entities() if e["version"] != 20])
            print(
                f"| {name} | {await stored_bytes(documents):,} B | {kept:,} B "
                f"| {kept / handled:.0f} B | {wrong} of {articles} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--articles", type=int, default=200)
    given = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"Table Storage by Azurite in memory, on {machine}\n")
    with Azurite() as azurite:
        asyncio.run(compare(azurite, given.articles))


if __name__ == "__main__":
    main()
