"""The only reader of the environment: settings -> clients (made when first used) -> stores, queues.

What every function of the app is made of. The consumers themselves are composed by the blueprint that
registers their function, from `App.consumer`, `App.inbox` and `App.guard`.
"""

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shared import clients, storage
from shared.blobs import AzureBlobs, Blobs
from shared.idempotency import (
    ConfigurationError,
    Consumer,
    Effects,
    Inbox,
    InboxStore,
    Observer,
    Outbox,
    StateStore,
    VersionGuard,
    all_of,
)
from shared.idempotency.markers import ChangedFields
from shared.idempotency.retention_check import RetentionCheck
from shared.idempotency.scanning import RecordScan
from shared.idempotency.telemetry import Links, Logs, Metrics
from shared.idempotency.triggers.service_bus import Settlement
from shared.idempotency.triggers.settlement import (
    BindingSettlement,
    QuarantineSettlement,
)
from shared.idempotency.upkeep import Upkeep
from shared.queues import SendOrder, ServiceBusQueues, StorageQueues
from shared.settings import Settings

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient


class App(msgspec.Struct, frozen=True, kw_only=True):
    """What the functions are made of."""

    settings: Settings
    settlement: Settlement
    stores: storage.Stores
    outbox: Outbox | None
    """None without Service Bus: then nothing is published."""
    queues: ServiceBusQueues
    storage_queues: StorageQueues
    blobs: Blobs
    """Of the container that imports are read from."""
    send_order: SendOrder
    observer: Observer
    sources: Mapping[str, str]
    service_bus: "Callable[[], ServiceBusClient]"
    scans: tuple[RecordScan, ...]
    upkeep: Upkeep
    check_retention: "Callable[[], Awaitable[None]]"

    def consumer(
        self, name: str, *, effects: Effects | None = None, reusable_keys: bool = False
    ) -> Consumer:
        """A two-phase consumer under the app's policy, its records in their own placement."""
        return Consumer(
            name,
            self.stores.records,
            policy=self.settings.policy,
            effects=effects,
            reusable_keys=reusable_keys,
            observer=self.observer,
        )

    def inbox(
        self,
        name: str,
        store: InboxStore | None = None,
        *,
        partition: Callable[[str], str] | None = None,
        entity_is_marker: bool = False,
        changed_fields: ChangedFields | None = None,
    ) -> Inbox:
        """An inbox under the app's policy: beside the orders, where it can send messages, or elsewhere."""
        return Inbox(
            name,
            store or self.stores.orders,
            partition=partition,
            entity_is_marker=entity_is_marker,
            changed_fields=changed_fields,
            outbox=self.outbox if store is None else None,
            policy=self.settings.policy,
            observer=self.observer,
        )

    def guard(self, name: str, states: StateStore) -> VersionGuard:
        """A guard of what is idempotent by nature, under the app's policy."""
        return VersionGuard(name, states, policy=self.settings.policy, observer=self.observer)


def build(environment: Mapping[str, str] = os.environ) -> App:
    """The app's parts from its settings; nothing is connected yet.

    Raises ConfigurationError naming the setting that is missing or wrong.
    """
    settings = Settings.read(environment)
    _configure_telemetry(settings)
    observer = all_of(Metrics(), Logs(), Links())
    stores = storage.stores(settings, observer)
    scans, purgeable = storage.scans(settings)
    service_bus = functools.partial(clients.service_bus, settings.service_bus)
    queues = ServiceBusQueues(service_bus)
    storage_queues = StorageQueues(
        functools.partial(clients.queues, settings.queues), orders=settings.orders_storage_queue
    )
    send_order: SendOrder = storage_queues.send_order
    outbox: Outbox | None = None
    if settings.service_bus:
        outbox = Outbox(stores.orders, queues.relay, grace=settings.outbox_grace, observer=observer)
        send_order = functools.partial(queues.send_order, settings.orders_queue)
    return App(
        settings=settings,
        settlement=_settlement(settings, queues),
        stores=stores,
        outbox=outbox,
        queues=queues,
        storage_queues=storage_queues,
        blobs=AzureBlobs(
            functools.partial(clients.blobs, settings.blobs, settings.imports.container)
        ),
        send_order=send_order,
        observer=observer,
        sources=_sources(settings),
        service_bus=service_bus,
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

    try:
        configure_azure_monitor(
            connection_string=settings.telemetry,
            enable_live_metrics=False,
            resource=Resource.create({"service.name": settings.operations.role}),
        )
    except ValueError as error:
        raise ConfigurationError(
            f"app setting APPLICATIONINSIGHTS_CONNECTION_STRING: {error}; copy it as the portal shows it, "
            "or leave it out"
        ) from error


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
        "email_confirmation": f"{topic}/{settings.email_subscription}",
        "loyalty_points": f"{topic}/{settings.loyalty_subscription}",
        "audit_orders": f"{topic}/{settings.audit_subscription}",
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


def _settlement(settings: Settings, queues: ServiceBusQueues) -> Settlement:
    if settings.settlement == "quarantine-queue":
        return QuarantineSettlement(functools.partial(queues.quarantine, settings.quarantine_queue))
    return BindingSettlement()
