"""Where the app keeps things: stores of records, orders and guarded states, by the configured SDK."""

import functools
from typing import NamedTuple

from . import clients
from .idempotency import Observer, OutboxStore, StateStore, Store
from .idempotency.purging import Purgeable
from .idempotency.scanning import Placement, RecordScan
from .idempotency.stores.observed import ObservedInbox, ObservedStore
from .idempotency.stores.observed_state import ObservedStateStore
from .paid_orders import PaidOrders, PaidOrdersOnCosmos, PaidOrdersOnTable
from .settings import Settings


class Stores(NamedTuple):
    """The records of two-phase consumers, orders, what is guarded by version, ledgers, and what was paid."""

    records: Store
    orders: OutboxStore
    stock_levels: StateStore
    timelines: StateStore
    ledgers: OutboxStore
    paid_orders: PaidOrders


def stores(settings: Settings, observer: Observer) -> Stores:
    """All stores, their calls observed; imports the configured SDK only."""
    guarded = (settings.inventory_name, settings.timelines_name)
    if settings.cosmos:
        from .idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
        from .idempotency.stores.cosmos_access import Container
        from .idempotency.stores.cosmos_inbox import CosmosInbox
        from .idempotency.stores.cosmos_state import CosmosStateStore

        client = clients.cosmos(settings.cosmos, verify_tls=settings.cosmos_verify_tls)
        container = functools.partial(Container, client, database=settings.cosmos_database)
        records: Store = CosmosStore(
            container(container=settings.records_name, partition_path=PARTITION_PATH)
        )
        orders: OutboxStore = CosmosInbox(
            container(container=settings.orders_name, partition_path="/order_id"),
            partition_property="order_id",
        )
        ledgers: OutboxStore = CosmosInbox(
            container(container=settings.ledgers_name, partition_path="/ledger"),
            partition_property="ledger",
        )
        paid: PaidOrders = PaidOrdersOnCosmos(
            container(container=settings.orders_name, partition_path="/order_id")
        )
        states: list[StateStore] = [
            CosmosStateStore(container(container=name, partition_path=PARTITION_PATH))
            for name in guarded
        ]
    else:
        from .idempotency.stores.table import TableStore
        from .idempotency.stores.table_inbox import TableInbox
        from .idempotency.stores.table_state import TableStateStore

        records = TableStore(clients.table(settings.tables, settings.records_name))
        orders = TableInbox(clients.table(settings.tables, settings.orders_name))
        ledgers = TableInbox(clients.table(settings.tables, settings.ledgers_name))
        paid = PaidOrdersOnTable(clients.table(settings.tables, settings.orders_name))
        states = [TableStateStore(clients.table(settings.tables, name)) for name in guarded]
    stock_levels, timelines = (ObservedStateStore(store, observer) for store in states)
    return Stores(
        ObservedStore(records, observer),
        ObservedInbox(orders, observer),
        stock_levels,
        timelines,
        ObservedInbox(ledgers, observer),
        paid,
    )


def scans(settings: Settings) -> tuple[tuple[RecordScan, ...], Purgeable | None]:
    """Where operators look for records, and the one place that has to be purged, if there is one."""
    if settings.cosmos:
        from .idempotency.stores.cosmos import PARTITION_PATH
        from .idempotency.stores.cosmos_access import Container
        from .idempotency.stores.cosmos_scan import CosmosScan

        client = clients.cosmos(settings.cosmos, verify_tls=settings.cosmos_verify_tls)
        container = functools.partial(Container, client, database=settings.cosmos_database)
        records = container(container=settings.records_name, partition_path=PARTITION_PATH)
        orders = container(container=settings.orders_name, partition_path="/order_id")
        ledgers = container(container=settings.ledgers_name, partition_path="/ledger")
        return (
            CosmosScan(records, placement=Placement.DEDICATED),
            CosmosScan(orders, placement=Placement.BESIDE_DATA, partition_property="order_id"),
            CosmosScan(ledgers, placement=Placement.BESIDE_DATA, partition_property="ledger"),
        ), None
    from .idempotency.stores.table_scan import TableScan

    dedicated = TableScan(
        clients.table(settings.tables, settings.records_name), placement=Placement.DEDICATED
    )
    markers = (
        TableScan(clients.table(settings.tables, name), placement=Placement.BESIDE_DATA)
        for name in (settings.orders_name, settings.ledgers_name)
    )
    return (dedicated, *markers), dedicated
