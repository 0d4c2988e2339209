"""The only reader of the environment: settings -> clients (made when first used) -> stores -> consumers."""

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shared import clients
from shared.idempotency import (
    ConfigurationError,
    Consumer,
    Effects,
    Inbox,
    Observer,
    Outbox,
    OutboxStore,
    Reconcile,
    StateStore,
    Store,
    VersionGuard,
    all_of,
)
from shared.idempotency.entities import EntityStates
from shared.idempotency.purging import Purgeable
from shared.idempotency.retention_check import RetentionCheck
from shared.idempotency.scanning import Placement, RecordScan
from shared.idempotency.stores.observed import ObservedInbox, ObservedStore
from shared.idempotency.stores.observed_state import ObservedStateStore
from shared.idempotency.telemetry import Links, Logs, Metrics
from shared.idempotency.triggers.event_grid import SetAside
from shared.idempotency.triggers.service_bus import Settlement
from shared.idempotency.triggers.settlement import BindingSettlement, QuarantineSettlement
from shared.idempotency.triggers.standard_webhooks import StandardWebhooks
from shared.idempotency.upkeep import Upkeep
from shared.orders import changed_fields
from shared.payments import PaymentProvider
from shared.queues import SendOrder, ServiceBusQueues, StorageQueues
from shared.settings import Settings

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

_WEBHOOKS_ARE_REPEATED = 4 * 24 * 3600.0
"""Seconds, rounded up."""


class Payments(NamedTuple):
    """How customers are charged."""

    charge_payment: Consumer
    provider: PaymentProvider


class Webhooks(NamedTuple):
    """How the provider tells what became of a charge."""

    verifier: StandardWebhooks
    payment_webhook: Consumer
    order_payment: VersionGuard
    send_fulfilment: Callable[[str], Awaitable[None]]


class App(msgspec.Struct, frozen=True, kw_only=True):
    """What the functions are made of."""

    settings: Settings
    settlement: Settlement
    orders: OutboxStore
    stock_levels: StateStore
    timelines: StateStore
    process_order: Inbox
    fulfil_order: Inbox
    submit_order: Consumer
    stock_level_changed: VersionGuard
    order_timeline: VersionGuard
    outbox: Outbox | None
    """None without Service Bus: then nothing is published."""
    payments: "Payments | None"
    webhooks: "Webhooks | None"
    order_status_changed: VersionGuard
    quarantine_event: SetAside
    send_order: SendOrder
    storage_queues: StorageQueues
    observer: Observer
    sources: Mapping[str, str]
    service_bus: "Callable[[], ServiceBusClient]"
    scans: tuple[RecordScan, ...]
    upkeep: Upkeep
    check_retention: "Callable[[], Awaitable[None]]"


def build(environment: Mapping[str, str] = os.environ) -> App:
    """The app's parts from its settings; nothing is connected yet.

    Raises ConfigurationError naming the setting that is missing or wrong.
    """
    settings = Settings.read(environment)
    _configure_telemetry(settings)
    observer = all_of(Metrics(), Logs(), Links())
    stores = _stores(settings, observer)
    queues = ServiceBusQueues(functools.partial(clients.service_bus, settings.service_bus))
    storage_queues = StorageQueues(
        functools.partial(clients.queues, settings.queues), orders=settings.orders_storage_queue
    )
    send_order: SendOrder = storage_queues.send_order
    outbox: Outbox | None = None
    if settings.service_bus:
        outbox = Outbox(stores.orders, queues.relay, grace=settings.outbox_grace, observer=observer)
        send_order = functools.partial(queues.send_order, settings.orders_queue)
    scans, purgeable = _scans(settings)
    return App(
        settings=settings,
        settlement=_settlement(settings, queues),
        orders=stores.orders,
        stock_levels=stores.stock_levels,
        timelines=stores.timelines,
        process_order=Inbox(
            "process_order",
            stores.orders,
            entity_is_marker=True,
            changed_fields=changed_fields,
            outbox=outbox,
            policy=settings.policy,
            observer=observer,
        ),
        fulfil_order=Inbox(
            "fulfil_order",
            stores.orders,
            outbox=outbox,
            policy=settings.policy,
            observer=observer,
        ),
        submit_order=Consumer(
            "submit_order",
            stores.records,
            reusable_keys=True,
            policy=settings.policy,
            observer=observer,
        ),
        stock_level_changed=VersionGuard(
            "stock_level_changed",
            stores.stock_levels,
            policy=settings.policy,
            observer=observer,
        ),
        order_timeline=VersionGuard(
            "order_timeline", stores.timelines, policy=settings.policy, observer=observer
        ),
        outbox=outbox,
        payments=_payments(settings, stores.records, observer),
        webhooks=_webhooks(settings, stores, queues, observer),
        order_status_changed=VersionGuard(
            "order_status_changed",
            EntityStates(stores.orders),
            policy=settings.policy,
            observer=observer,
        ),
        quarantine_event=functools.partial(queues.quarantine_event, settings.quarantine_queue),
        send_order=send_order,
        storage_queues=storage_queues,
        observer=observer,
        sources=_sources(settings),
        service_bus=functools.partial(clients.service_bus, settings.service_bus),
        scans=scans,
        upkeep=Upkeep(scans, observer, purgeable=purgeable),
        check_retention=_retention_check(settings),
    )


def _configure_telemetry(settings: Settings) -> None:
    """Configure Azure Monitor, unless the worker does it by its own setting."""
    # the SDKs log every request at INFO
    logging.getLogger("azure").setLevel(logging.WARNING)
    if settings.telemetry is None or settings.telemetry_by_worker:
        return
    from azure.monitor.opentelemetry import configure_azure_monitor
    from opentelemetry.sdk.resources import Resource

    configure_azure_monitor(
        connection_string=settings.telemetry,
        enable_live_metrics=False,
        resource=Resource.create({"service.name": settings.operations.role}),
    )


class _Stores(NamedTuple):
    """Where things are kept: the records of two-phase consumers, orders, and what is guarded by version."""

    records: Store
    orders: OutboxStore
    stock_levels: StateStore
    timelines: StateStore


def _stores(settings: Settings, observer: Observer) -> _Stores:
    """All stores, their calls observed; imports the configured SDK only."""
    guarded = (settings.inventory_name, settings.timelines_name)
    if settings.cosmos:
        from shared.idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
        from shared.idempotency.stores.cosmos_access import Container
        from shared.idempotency.stores.cosmos_inbox import CosmosInbox
        from shared.idempotency.stores.cosmos_state import CosmosStateStore

        client = clients.cosmos(settings.cosmos, verify_tls=settings.cosmos_verify_tls)
        container = functools.partial(Container, client, database=settings.cosmos_database)
        records: Store = CosmosStore(
            container(container=settings.records_name, partition_path=PARTITION_PATH)
        )
        orders: OutboxStore = CosmosInbox(
            container(container=settings.orders_name, partition_path="/order_id"),
            partition_property="order_id",
        )
        states: list[StateStore] = [
            CosmosStateStore(container(container=name, partition_path=PARTITION_PATH))
            for name in guarded
        ]
    else:
        from shared.idempotency.stores.table import TableStore
        from shared.idempotency.stores.table_inbox import TableInbox
        from shared.idempotency.stores.table_state import TableStateStore

        records = TableStore(clients.table(settings.tables, settings.records_name))
        orders = TableInbox(clients.table(settings.tables, settings.orders_name))
        states = [TableStateStore(clients.table(settings.tables, name)) for name in guarded]
    stock_levels, timelines = (ObservedStateStore(store, observer) for store in states)
    return _Stores(
        ObservedStore(records, observer), ObservedInbox(orders, observer), stock_levels, timelines
    )


def _scans(settings: Settings) -> tuple[tuple[RecordScan, ...], Purgeable | None]:
    """Where operators look for records, and the one place that has to be purged, if there is one."""
    if settings.cosmos:
        from shared.idempotency.stores.cosmos import PARTITION_PATH
        from shared.idempotency.stores.cosmos_access import Container
        from shared.idempotency.stores.cosmos_scan import CosmosScan

        client = clients.cosmos(settings.cosmos, verify_tls=settings.cosmos_verify_tls)
        container = functools.partial(Container, client, database=settings.cosmos_database)
        records = container(container=settings.records_name, partition_path=PARTITION_PATH)
        orders = container(container=settings.orders_name, partition_path="/order_id")
        beside = CosmosScan(orders, placement=Placement.BESIDE_DATA, partition_property="order_id")
        return (CosmosScan(records, placement=Placement.DEDICATED), beside), None
    from shared.idempotency.stores.table_scan import TableScan

    dedicated = TableScan(
        clients.table(settings.tables, settings.records_name), placement=Placement.DEDICATED
    )
    markers = TableScan(
        clients.table(settings.tables, settings.orders_name), placement=Placement.BESIDE_DATA
    )
    return (dedicated, markers), dedicated


def _sources(settings: Settings) -> dict[str, str]:
    """What each consumer reads from Service Bus: where its dead letters are."""
    if not settings.service_bus:
        return {}
    topic = settings.order_events_topic
    return {
        "process_order": settings.orders_queue,
        "fulfil_order": settings.fulfilment_queue,
        "stock_level_changed": settings.stock_queue,
        "order_timeline": f"{topic}/{settings.timeline_subscription}",
        "charge_payment": f"{topic}/{settings.payments_subscription}",
    }


def _retention_check(settings: Settings) -> Callable[[], Awaitable[None]]:
    """Checks retention: at once against a local broker's file, else against the namespace when called."""
    check = RetentionCheck(
        settings.policy,
        dead_letters=settings.operations.dead_letters,
        unread=[settings.quarantine_queue],
    )
    if settings.operations.entity_file and settings.service_bus:
        check.at_start(Path(settings.operations.entity_file))
    namespace = settings.service_bus.address if settings.service_bus else None

    async def ask() -> None:
        if namespace:
            await check.once(functools.partial(clients.administration, namespace))

    return ask


def _payments(settings: Settings, records: Store, observer: Observer) -> Payments | None:
    """Charging, where a provider is configured.

    A charge in doubt is looked up, and made again only if the provider does not know of it; under the
    same key, so that one which lands after all is found to be the same.
    """
    chosen = settings.payments
    if chosen is None:
        return None
    provider = PaymentProvider(chosen.url, timeout=chosen.timeout)
    consumer = Consumer(
        "charge_payment",
        records,
        policy=settings.policy,
        effects=Effects(policy=Reconcile(provider.reconcile), settle=chosen.settle),
        observer=observer,
    )
    return Payments(consumer, provider)


def _webhooks(
    settings: Settings, stores: _Stores, queues: ServiceBusQueues, observer: Observer
) -> Webhooks | None:
    """Webhooks, where the provider's secret is known and there is a queue to go on with."""
    if not settings.webhook_secrets or settings.service_bus is None:
        return None
    if settings.policy.retention < _WEBHOOKS_ARE_REPEATED:
        raise ConfigurationError(
            f"app setting IDEMPOTENCY_RETENTION_DAYS is {settings.policy.retention / 86400:g}, but "
            "webhooks are repeated for 75 hours: keep their records for 4 days at least"
        )
    try:
        verifier = StandardWebhooks(settings.webhook_secrets)
    except ConfigurationError as error:
        raise ConfigurationError(f"app setting PAYMENT_WEBHOOK_SECRETS: {error}") from error
    return Webhooks(
        verifier,
        Consumer("payment_webhook", stores.records, policy=settings.policy, observer=observer),
        VersionGuard(
            "order_payment",
            EntityStates(stores.orders),
            policy=settings.policy,
            observer=observer,
        ),
        functools.partial(queues.send_fulfilment, settings.fulfilment_queue),
    )


def _settlement(settings: Settings, queues: ServiceBusQueues) -> Settlement:
    if settings.settlement == "quarantine-queue":
        return QuarantineSettlement(functools.partial(queues.quarantine, settings.quarantine_queue))
    return BindingSettlement()
