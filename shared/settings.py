"""The app's settings: read once from a mapping, checked, and named in every complaint."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from . import connections
from .connections import Connection
from .idempotency.errors import ConfigurationError
from .idempotency.records import Policy
from .idempotency.schedules import crontab
from .idempotency.triggers.pacing import Pacing
from .names import (
    BLOB_CONTAINER,
    COSMOS,
    SERVICE_BUS,
    STORAGE_QUEUE,
    STREAM,
    SUBSCRIPTION,
    TABLE,
    Rule,
    check_name,
)

_log = logging.getLogger("app.settings")
_EVENT_HUBS = ("EventHubConnection", "EventHubConnection__fullyQualifiedNamespace")


class PaymentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where customers are charged; ``timeout`` of a call as a whole, and ``settle``, in seconds.

    ``settle``: how long after its timeout a call may still have its effect.
    """

    url: str
    timeout: float
    settle: float


class ImportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where imports are asked for, and where the files are; ``slice_seconds``: see `Importer`."""

    queue: str
    container: str
    slice_seconds: float


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where mails are sent; ``timeout`` of a call as a whole, in seconds."""

    url: str
    timeout: float


class OperationsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What operators decide.

    ``admin``: whether the administrative HTTP functions are there. ``dead_letters``: seconds within which
    a dead letter is re-sent if at all. ``purge_schedule``: an NCRONTAB expression. ``entity_file``: the
    entities of a local broker, to check retention against. ``role``: the name telemetry comes under.
    """

    admin: bool
    dead_letters: float
    purge_schedule: str
    entity_file: str | None
    role: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the app can be told by app settings; every name is explained in the README."""

    store: Literal["table", "cosmos"]
    tables: Connection
    queues: Connection
    blobs: Connection
    service_bus: Connection | None
    cosmos: Connection | None
    cosmos_database: str
    cosmos_verify_tls: bool
    orders_name: str
    records_name: str
    inventory_name: str
    timelines_name: str
    ledgers_name: str
    orders_queue: str
    orders_storage_queue: str
    quarantine_queue: str
    stock_queue: str
    fulfilment_queue: str
    order_events_topic: str
    timeline_subscription: str
    imports: ImportSettings
    payments: PaymentSettings | None
    payments_subscription: str
    email_subscription: str
    loyalty_subscription: str
    audit_subscription: str
    mail: MailSettings | None
    event_hub: str | None
    """The event hub of order events; None where there is none, as with the next two."""
    kafka_topic: str | None
    rabbitmq_queue: str | None
    rabbitmq_pacing: Pacing
    aside_queue: str
    settlement_schedule: str
    outbox_sweep_schedule: str
    outbox_grace: float
    webhook_secrets: tuple[str, ...]
    event_origins: tuple[str, ...]
    settlement: Literal["binding", "quarantine-queue"]
    policy: Policy
    pacing: Pacing
    telemetry: str | None
    telemetry_by_worker: bool
    operations: OperationsSettings

    def __repr__(self) -> str:
        """Without anything: some of it is secret."""
        return f"Settings(store={self.store})"

    @property
    def takes_webhooks(self) -> bool:
        """Whether the provider's secret is known and there is a queue to go on with."""
        return bool(self.webhook_secrets) and self.service_bus is not None

    @classmethod
    def read(cls, values: Mapping[str, str]) -> "Settings":
        """Settings from app settings; raises ConfigurationError naming the one that is wrong."""
        store: Literal["table", "cosmos"] = _choice(
            values, "IDEMPOTENCY_STORE", ("table", "cosmos")
        )
        service_bus = connections.service_bus(values)
        cosmos = connections.cosmos(values) if store == "cosmos" else None
        policy = _policy(values)
        kept = COSMOS if cosmos else TABLE
        return cls(
            store=store,
            tables=connections.storage(values, "table"),
            queues=connections.storage(values, "queue"),
            blobs=connections.storage(values, "blob"),
            service_bus=service_bus,
            cosmos=cosmos,
            cosmos_database=_name(values, "COSMOS_DATABASE", "orders", COSMOS),
            cosmos_verify_tls=not (cosmos and cosmos.is_loopback),
            orders_name=_name(values, "ORDERS_CONTAINER", "orders", kept),
            records_name=_name(values, "RECORDS_CONTAINER", "idempotency", kept),
            inventory_name=_name(values, "INVENTORY_CONTAINER", "inventory", kept),
            timelines_name=_name(values, "TIMELINES_CONTAINER", "timelines", kept),
            ledgers_name=_name(values, "LEDGERS_CONTAINER", "ledgers", kept),
            orders_queue=_name(values, "ORDERS_QUEUE", "orders", SERVICE_BUS),
            orders_storage_queue=_name(values, "ORDERS_STORAGE_QUEUE", "orders", STORAGE_QUEUE),
            quarantine_queue=_name(values, "QUARANTINE_QUEUE", "quarantine", SERVICE_BUS),
            fulfilment_queue=_name(values, "FULFILMENT_QUEUE", "fulfilment", SERVICE_BUS),
            stock_queue=_name(values, "STOCK_QUEUE", "stock-levels", SERVICE_BUS),
            order_events_topic=_name(values, "ORDER_EVENTS_TOPIC", "order-events", SERVICE_BUS),
            timeline_subscription=_name(
                values, "TIMELINE_SUBSCRIPTION", "order-timeline", SUBSCRIPTION
            ),
            imports=_imports(values, policy),
            payments=_payments(values, policy),
            payments_subscription=_name(values, "PAYMENTS_SUBSCRIPTION", "payments", SUBSCRIPTION),
            email_subscription=_name(values, "EMAIL_SUBSCRIPTION", "email", SUBSCRIPTION),
            loyalty_subscription=_name(values, "LOYALTY_SUBSCRIPTION", "loyalty", SUBSCRIPTION),
            audit_subscription=_name(values, "AUDIT_SUBSCRIPTION", "audit", SUBSCRIPTION),
            mail=_mail(values, policy),
            event_hub=_where(values, "EVENT_HUB", _EVENT_HUBS, STREAM),
            kafka_topic=_where(values, "KAFKA_TOPIC", ("KAFKA_BROKERS",), STREAM),
            rabbitmq_queue=_where(values, "RABBITMQ_QUEUE", ("RabbitMQConnection",), STREAM),
            rabbitmq_pacing=_rabbitmq_pacing(values),
            aside_queue=_name(values, "EVENTS_ASIDE_QUEUE", "events-aside", STORAGE_QUEUE),
            settlement_schedule=_schedule(values, "SETTLEMENT_SCHEDULE", "0 0 2 * * *"),
            outbox_sweep_schedule=_schedule(values, "OUTBOX_SWEEP_SCHEDULE", "0 * * * * *"),
            outbox_grace=_seconds(values, "OUTBOX_GRACE_SECONDS", 60.0),
            webhook_secrets=_secrets(values, "PAYMENT_WEBHOOK_SECRETS"),
            event_origins=tuple(_text(values, "EVENT_ORIGINS", "eventgrid.azure.net").split()),
            settlement=_choice(values, "SERVICEBUS_SETTLEMENT", ("binding", "quarantine-queue")),
            policy=policy,
            pacing=Pacing(
                first=_seconds(values, "PACING_FIRST_SECONDS", 1.0),
                longest=_seconds(values, "PACING_LONGEST_SECONDS", 30.0),
            ),
            telemetry=values.get("APPLICATIONINSIGHTS_CONNECTION_STRING") or None,
            telemetry_by_worker=_flag(values, "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"),
            operations=_operations(values),
        )


def _operations(values: Mapping[str, str]) -> OperationsSettings:
    return OperationsSettings(
        admin=_flag(values, "IDEMPOTENCY_ADMIN"),
        dead_letters=_seconds(values, "IDEMPOTENCY_DEAD_LETTER_DAYS", 14.0) * 86400,
        purge_schedule=_schedule(values, "PURGE_SCHEDULE", "0 23 * * * *"),
        entity_file=values.get("SERVICEBUS_ENTITY_FILE") or None,
        role=_text(values, "OTEL_SERVICE_NAME", "orders"),
    )


def _policy(values: Mapping[str, str]) -> Policy:
    defaults = Policy()
    names = ("lease", "heartbeat", "wait", "deadline")
    chosen: dict[str, Any] = {
        name: _seconds(values, f"IDEMPOTENCY_{name.upper()}_SECONDS", getattr(defaults, name))
        for name in names
    }
    retention = _seconds(values, "IDEMPOTENCY_RETENTION_DAYS", defaults.retention / 86400) * 86400
    try:
        return Policy(**chosen, retention=retention)
    except ConfigurationError as error:
        raise ConfigurationError(f"app settings IDEMPOTENCY_*: {error}") from error


def _imports(values: Mapping[str, str], policy: Policy) -> ImportSettings:
    return ImportSettings(
        queue=_name(values, "IMPORTS_STORAGE_QUEUE", "imports", STORAGE_QUEUE),
        container=_name(values, "IMPORTS_CONTAINER", "imports", BLOB_CONTAINER),
        slice_seconds=_seconds(values, "IMPORT_SLICE_SECONDS", 0.4 * policy.deadline),
    )


def _mail(values: Mapping[str, str], policy: Policy) -> MailSettings | None:
    url = _url(values, "MAIL_PROVIDER_URL")
    timeout = _seconds(values, "MAIL_TIMEOUT_SECONDS", 10.0)
    if url and timeout >= policy.lease:
        raise ConfigurationError(
            f"app setting MAIL_TIMEOUT_SECONDS ({timeout:g}) must be below "
            f"IDEMPOTENCY_LEASE_SECONDS ({policy.lease:g}): a call must be over before another attempt"
        )
    return MailSettings(url=url, timeout=timeout) if url else None


def _payments(values: Mapping[str, str], policy: Policy) -> PaymentSettings | None:
    url = _url(values, "PAYMENT_PROVIDER_URL")
    timeout = _seconds(values, "PAYMENT_TIMEOUT_SECONDS", 10.0)
    settle = _seconds(values, "PAYMENT_SETTLE_SECONDS", 20.0)
    if timeout >= policy.lease:
        raise ConfigurationError(
            f"app setting PAYMENT_TIMEOUT_SECONDS ({timeout:g}) must be below "
            f"IDEMPOTENCY_LEASE_SECONDS ({policy.lease:g}): a call must be over before another attempt"
        )
    if timeout > settle or settle + timeout > policy.deadline:
        raise ConfigurationError(
            f"app setting PAYMENT_SETTLE_SECONDS ({settle:g}) must not be below "
            f"PAYMENT_TIMEOUT_SECONDS ({timeout:g}), nor both together above "
            f"IDEMPOTENCY_DEADLINE_SECONDS ({policy.deadline:g})"
        )
    return PaymentSettings(url=url, timeout=timeout, settle=settle) if url else None


def _secrets(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Secrets with blanks between them; none where Key Vault does not have them yet.

    A reference that could not be resolved stands in the setting as it was written. That is how it is
    until somebody has stored the secret, and nothing to keep the whole app from starting.
    """
    value = values.get(name) or ""
    if value.startswith("@Microsoft.KeyVault("):
        _log.warning("app setting %s: Key Vault has no such secret; its function is off", name)
        return ()
    return tuple(value.split())


def _text(values: Mapping[str, str], name: str, default: str) -> str:
    return values.get(name) or default


def _schedule(values: Mapping[str, str], name: str, default: str) -> str:
    """An expression that some moment fits; the host would start the app without the function."""
    text = _text(values, name, default)
    try:
        crontab(text).after(datetime.now(UTC))
    except ValueError as error:
        raise ConfigurationError(
            f"app setting {name} is {text!r}, no NCRONTAB expression such as {default!r}: {error}"
        ) from error
    return text


def _url(values: Mapping[str, str], name: str) -> str:
    url = _text(values, name, "").rstrip("/")
    if url and not url.startswith(("https://", "http://")):
        raise ConfigurationError(f"app setting {name} must begin with https://")
    return url


def _rabbitmq_pacing(values: Mapping[str, str]) -> Pacing:
    """Nobody tells which delivery it is, so that each is held as long as the others."""
    held = _seconds(values, "RABBITMQ_HOLD_SECONDS", 30.0)
    return Pacing(first=held, longest=held)


def _where(
    values: Mapping[str, str], name: str, connections: tuple[str, ...], rule: Rule
) -> str | None:
    """Where order events come from, if one of the connections to it is configured."""
    place = _name(values, name, "order-events", rule)
    return place if any(values.get(connection) for connection in connections) else None


def _name(values: Mapping[str, str], name: str, default: str, rule: Rule) -> str:
    return check_name(name, _text(values, name, default), rule)


def _choice[C: str](values: Mapping[str, str], name: str, choices: tuple[C, ...]) -> C:
    value = values.get(name) or choices[0]
    for choice in choices:
        if value == choice:
            return choice
    raise ConfigurationError(
        f"app setting {name} is {value!r}; it must be one of {', '.join(choices)}"
    )


def _seconds(values: Mapping[str, str], name: str, default: float) -> float:
    value = values.get(name)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        raise ConfigurationError(f"app setting {name} is {value!r}; it must be a number") from None
    if not 0 < number < float("inf"):
        raise ConfigurationError(f"app setting {name} is {value}; it must be more than 0")
    return number


def _flag(values: Mapping[str, str], name: str) -> bool:
    # as the worker reads its own: what it takes for true must not be false to us
    return (values.get(name) or "").strip().lower() in ("1", "true", "t", "yes", "y")
