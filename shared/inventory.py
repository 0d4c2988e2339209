"""Stock levels: what a message must hold, and the state it carries."""

from typing import Annotated

import msgspec
from msgspec import Meta

from .idempotency import State
from .idempotency.states import MAX_VERSION
from .orders import Name

# without a dot: the first dot of a level's id ends its warehouse
type Warehouse = Annotated[str, Meta(pattern="^[A-Za-z0-9-]{1,32}$")]


class StockLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an article a warehouse has: the level itself, never a difference.

    ``version`` is raised by the warehouse with each change of this level.
    """

    sku: Name
    warehouse: Warehouse
    level: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]

    def state(self) -> State:
        """The state to be kept if it is newer."""
        document = {"type": "stock_level", **msgspec.to_builtins(self)}
        return State(id=stock_id(self.warehouse, self.sku), version=self.version, document=document)


def stock_id(warehouse: str, sku: str) -> str:
    """The id of an article's level in a warehouse."""
    return f"{warehouse}.{sku}"
