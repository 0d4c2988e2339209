"""Functions as the worker reports them, and the settings their bindings name."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PLACEHOLDER = re.compile(r"%([^%]+)%")
DEFAULT_CONNECTION = {
    "serviceBusTrigger": "AzureWebJobsServiceBus",
    "queueTrigger": "AzureWebJobsStorage",
}


class BindingError(Exception):
    """A binding that cannot work; the message names the setting and is for a person to read."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: how often a failed run is repeated (-1: no end), and after how many seconds."""

    most: int
    first: float
    longest: float

    def pause(self, tries: int) -> float | None:
        """Seconds until the run that follows so many vain repetitions; None when there is none."""
        if 0 <= self.most <= tries:
            return None
        return min(self.first * float(1 << min(tries, 16)), self.longest)


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the app: its name, the worker's id for it, its bindings, its retry policy."""

    name: str
    function_id: str
    bindings: tuple[Mapping[str, Any], ...] = field(repr=False)
    retry: Retry | None = None

    @property
    def trigger(self) -> Mapping[str, Any]:
        """The binding that starts the function; the decorators make sure there is just one."""
        return next(b for b in self.bindings if str(b["type"]).lower().endswith("trigger"))

    @property
    def trigger_type(self) -> str:
        return str(self.trigger["type"])

    @property
    def outputs(self) -> tuple[Mapping[str, Any], ...]:
        """Output bindings other than the HTTP response."""
        return tuple(
            b for b in self.bindings if b.get("direction") == "OUT" and b["type"] != "http"
        )


def function_from_metadata(metadata: Any) -> Function:
    """The function in the worker's own metadata."""
    bindings = tuple(json.loads(raw) for raw in metadata.raw_bindings)
    return Function(metadata.name, metadata.function_id, bindings, _retry(metadata.retry_options))


def _retry(options: Any) -> Retry | None:
    if options is None:
        return None
    if options.retry_strategy == "fixed_delay":
        pause = options.delay_interval.total_seconds()
        return Retry(options.max_retry_count, pause, pause)
    first = options.minimum_interval.total_seconds()
    return Retry(options.max_retry_count, first, options.maximum_interval.total_seconds())


def resolve(text: str, environment: Mapping[str, str]) -> str:
    """The text with each `%SETTING%` replaced by the setting's value.

    Raises BindingError when a setting is missing.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            raise BindingError(f"'%{name}%' does not resolve to a value: set {name}")
        return environment[name]

    return PLACEHOLDER.sub(value, text)


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a binding connects to: a connection string, or an address used with an identity."""

    name: str
    connection_string: str | None = None
    address: str | None = None


def connection(trigger: Mapping[str, Any], environment: Mapping[str, str]) -> Connection:
    """The connection of a Service Bus or Storage queue trigger.

    Raises BindingError when neither `NAME` nor its identity-based form is set.
    """
    kind = str(trigger["type"])
    name = str(trigger.get("connection") or DEFAULT_CONNECTION[kind])
    for setting in (name, f"AzureWebJobs{name}"):
        if environment.get(setting):
            return Connection(name, connection_string=environment[setting])
    address = (
        environment.get(f"{name}__fullyQualifiedNamespace")
        if kind == "serviceBusTrigger"
        else _queue_service(name, environment)
    )
    if address:
        return Connection(name, address=address)
    forms = (
        f"{name}__fullyQualifiedNamespace"
        if kind == "serviceBusTrigger"
        else f"{name}__accountName or {name}__queueServiceUri"
    )
    raise BindingError(
        f"connection string '{name}' is missing or empty: set {name} (or {forms} for an identity)"
    )


def _queue_service(name: str, environment: Mapping[str, str]) -> str | None:
    if uri := environment.get(f"{name}__queueServiceUri"):
        return uri
    if account := environment.get(f"{name}__accountName"):
        return f"https://{account}.queue.core.windows.net"
    return None
