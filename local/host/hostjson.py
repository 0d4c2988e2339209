"""What `host.json` says, with the defaults of Azure's host for what it leaves out."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIME_SPAN = re.compile(r"(?:(\d+)\.)?(\d+):(\d+):(\d+(?:\.\d+)?)")


class HostJsonError(Exception):
    """A host.json that cannot be used; the message names the setting."""


@dataclass(frozen=True, slots=True)
class ServiceBusSettings:
    """`extensions.serviceBus`; durations in seconds."""

    auto_complete: bool
    max_concurrent_calls: int
    max_concurrent_sessions: int
    max_message_batch_size: int
    max_auto_lock_renewal: float
    prefetch_count: int
    session_idle_timeout: float


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`extensions.queues`; durations in seconds."""

    batch_size: int
    new_batch_threshold: int
    max_dequeue_count: int
    max_polling_interval: float
    visibility_timeout: float
    base64: bool


@dataclass(frozen=True, slots=True)
class HostSettings:
    """All of host.json that this host honours."""

    route_prefix: str
    log_level: str
    service_bus: ServiceBusSettings
    queues: QueueSettings


def load(app: Path) -> HostSettings:
    """The settings of the app in that directory.

    Raises HostJsonError when the file is missing, is no JSON, or holds an unusable value.
    """
    path = app / "host.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise HostJsonError(f"no host.json in {app}") from None
    except ValueError as error:
        raise HostJsonError(f"{path} is no JSON: {error}") from None
    extensions = content.get("extensions", {})
    return HostSettings(
        route_prefix=str(extensions.get("http", {}).get("routePrefix", "api")).strip("/"),
        log_level=str(content.get("logging", {}).get("logLevel", {}).get("default", "Information")),
        service_bus=_service_bus(extensions.get("serviceBus", {})),
        queues=_queues(extensions.get("queues", {})),
    )


def _service_bus(section: Mapping[str, Any]) -> ServiceBusSettings:
    cores = os.cpu_count() or 1
    return ServiceBusSettings(
        auto_complete=bool(section.get("autoCompleteMessages", True)),
        max_concurrent_calls=_count(section, "maxConcurrentCalls", 16 * cores),
        max_concurrent_sessions=_count(section, "maxConcurrentSessions", 8),
        max_message_batch_size=_count(section, "maxMessageBatchSize", 1000),
        max_auto_lock_renewal=_seconds(section, "maxAutoLockRenewalDuration", "00:05:00"),
        prefetch_count=_count(section, "prefetchCount", 0, least=0),
        session_idle_timeout=_seconds(section, "sessionIdleTimeout", "00:01:00"),
    )


def _queues(section: Mapping[str, Any]) -> QueueSettings:
    batch_size = _count(section, "batchSize", 16)
    encoding = str(section.get("messageEncoding", "base64")).lower()
    if encoding not in {"none", "base64"}:
        raise HostJsonError(f"host.json: messageEncoding is {encoding!r}, not none or base64")
    return QueueSettings(
        batch_size=min(batch_size, 32),
        new_batch_threshold=_count(section, "newBatchThreshold", batch_size // 2, least=0),
        max_dequeue_count=_count(section, "maxDequeueCount", 5),
        max_polling_interval=_seconds(section, "maxPollingInterval", "00:01:00"),
        visibility_timeout=_seconds(section, "visibilityTimeout", "00:00:00"),
        base64=encoding == "base64",
    )


def _count(section: Mapping[str, Any], name: str, default: int, *, least: int = 1) -> int:
    value = section.get(name, default)
    if not isinstance(value, int) or value < least:
        raise HostJsonError(f"host.json: {name} is {value!r}, not a number from {least} up")
    return value


def _seconds(section: Mapping[str, Any], name: str, default: str) -> float:
    text = str(section.get(name, default))
    try:
        return time_span(text)
    except ValueError as error:
        raise HostJsonError(f"host.json: {name}: {error}") from None


def time_span(text: str) -> float:
    """Seconds in a .NET time span such as `00:05:00` or `1.00:00:00`.

    Raises ValueError when the text is no time span.
    """
    match = TIME_SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time span (hh:mm:ss)")
    days, hours, minutes, seconds = match.groups(default="0")
    return int(days) * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + float(seconds)
