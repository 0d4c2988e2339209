"""What really happened: the journal and the orders, read from the store itself.

The journal is append-only, one document for each effect of a handler, written in the same
transaction as the order. So it shows what a keyed document cannot: an effect that happened twice.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from azure.cosmos.aio import CosmosClient
from azure.data.tables import TableServiceClient

from local.demo.stage import Stage
from local.demo.traffic import PlannedOrder
from local.services.cosmos import CLIENT_OPTIONS, CosmosServer

DATABASE = "orders"
ORDERS = "orders"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Effects and fulfilments by order id, and what each order's document says: customer and total."""

    effects: Counter[str]
    contents: Mapping[str, tuple[str, str]]
    fulfilments: Counter[str]

    @classmethod
    def read(cls, stage: Stage) -> "Ledger":
        """Read everything there is, past the app."""
        if stage.cosmos:
            return cls.of(asyncio.run(_from_cosmos(stage.cosmos)))
        return cls.of(_from_table(stage.azurite.connection_string))

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]]) -> "Ledger":
        """Sort what is about orders; the app keeps other documents beside it."""
        effects: Counter[str] = Counter()
        fulfilments: Counter[str] = Counter()
        contents: dict[str, tuple[str, str]] = {}
        for document in documents:
            kind, effect = document.get("type"), document.get("effect")
            if (kind, effect) == ("journal", "placed"):
                effects[document["order_id"]] += 1
            elif (kind, effect) == ("journal", "fulfilled"):
                fulfilments[document["order_id"]] += 1
            elif kind == "order":
                contents[document["order_id"]] = (document["customer_id"], document["total"])
        return cls(effects, contents, fulfilments)

    @property
    def doubled(self) -> int:
        """Effects beyond the first of each order."""
        return sum(count - 1 for count in self.effects.values())

    def doubled_of(self, orders: Iterable[PlannedOrder]) -> int:
        """As `doubled`, of these orders alone."""
        return sum(max(self.effects[each.id] - 1, 0) for each in orders)

    def lost_of(self, orders: Iterable[PlannedOrder]) -> tuple[str, ...]:
        """Those that were sent and have had no effect."""
        return tuple(each.id for each in orders if not self.effects[each.id])

    def overwritten_of(self, orders: Iterable[PlannedOrder]) -> tuple[str, ...]:
        """Those whose document does not have the content that was sent first."""
        return tuple(
            each.id
            for each in orders
            if self.contents.get(each.id)
            not in (None, (each.order.customer_id, str(each.order.total())))
        )


def _from_table(connection_string: str) -> list[dict[str, Any]]:
    with TableServiceClient.from_connection_string(connection_string) as service:
        return [dict(entity) for entity in service.get_table_client(ORDERS).list_entities()]


async def _from_cosmos(server: CosmosServer) -> list[dict[str, Any]]:
    async with CosmosClient(server.endpoint, server.key, **CLIENT_OPTIONS) as client:
        container = client.get_database_client(DATABASE).get_container_client(ORDERS)
        return [item async for item in container.query_items("SELECT * FROM c")]
