"""The orders that were paid on a day, read by a scan of all orders: page by page, none kept."""

from collections.abc import AsyncIterator
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

    from .idempotency.stores.cosmos_access import Container

_PAGE = 1000
_PROPERTIES = ("currency", "total")


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """What one order brought in, in its currency."""

    currency: str
    total: Decimal


class PaidOrders(Protocol):
    """Orders by the day of their payment."""

    def on(self, day: date) -> AsyncIterator[Payment]:
        """Those whose payment the provider dates to that day, UTC, and that are paid now, in any order.

        Raises StoreUnavailable; there is no going on with a scan that ended so.
        """
        ...


class PaidOrdersOnTable:
    """A scan of a table; Table Storage reads all of it, and sends what matches."""

    def __init__(self, table: "TableClient") -> None:
        self._table = table

    async def on(self, day: date) -> AsyncIterator[Payment]:
        from azure.core.exceptions import AzureError, HttpResponseError

        from .idempotency.stores.table_access import code_of, unavailable

        entities = self._table.query_entities(
            "payment_status eq 'paid' and payment_changed_at ge @first and payment_changed_at lt @end",
            parameters={"first": day.isoformat(), "end": (day + timedelta(days=1)).isoformat()},
            select=list(_PROPERTIES),
            results_per_page=_PAGE,
        )
        try:
            async for entity in entities:
                yield _payment(entity)
        except HttpResponseError as error:
            if code_of(error) != "TableNotFound":  # nobody has ordered yet
                raise unavailable(error) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise unavailable(error) from error


class PaidOrdersOnCosmos:
    """A query to every partition."""

    def __init__(self, container: "Container") -> None:
        self._items = container.items

    async def on(self, day: date) -> AsyncIterator[Payment]:
        from azure.core.exceptions import AzureError, HttpResponseError

        from .idempotency.stores.cosmos_access import unavailable

        items = self._items.query_items(
            "SELECT c.currency, c.total FROM c WHERE c.payment_status = 'paid' "
            "AND c.payment_changed_at >= @first AND c.payment_changed_at < @end",
            parameters=[
                {"name": "@first", "value": day.isoformat()},
                {"name": "@end", "value": (day + timedelta(days=1)).isoformat()},
            ],
            max_item_count=_PAGE,
        )
        try:
            async for item in items:
                yield _payment(item)
        except HttpResponseError as error:
            if error.status_code != 404:  # nobody has ordered yet
                raise unavailable(error) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise unavailable(error) from error


def _payment(document: Any) -> Payment:
    return Payment(currency=document["currency"], total=Decimal(document["total"]))
