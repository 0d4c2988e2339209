"""The broker's numbers: how long what comes out of each queue and subscription can come back.

Locally from the entity file that the broker reads, in the shape of the official emulator's Config.json;
deployed from the namespace, which only a credential with the right to manage it may ask.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import ConfigurationError
from .records import Policy
from .retention import Window, complaint

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_NEVER: Final = timedelta(days=10_000_000).total_seconds()
"""Azure says "never" with the longest time span of .NET, a little more than this."""
SHORTEST_LOCK: Final = 60.0
"""Seconds of a lock within which what holds a message back, and its settlement, are surely over."""
_DEFAULTS: Final = {"LockDuration": "PT1M", "MaxDeliveryCount": 10}


def windows_in_file(path: Path, *, dead_letters: float) -> list[Window]:
    """The windows of an entity file; raises ConfigurationError, naming the file, when it is none.

    ``dead_letters``: seconds for which a dead letter may lie before it is re-sent.
    """
    try:
        namespaces = json.loads(path.read_text())["UserConfig"]["Namespaces"]
        return [
            window for each in namespaces for window in _windows_in(each, dead_letters=dead_letters)
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path} cannot be read as an entity file: {error}") from error


def _windows_in(namespace: Mapping[str, Any], *, dead_letters: float) -> Iterator[Window]:
    def window(entity: str, properties: Mapping[str, Any], topic: Mapping[str, Any]) -> Window:
        told = {**_DEFAULTS, **properties}
        lives = [
            life
            for each in (properties, topic)
            if (life := _seconds(each.get("DefaultMessageTimeToLive"))) is not None
        ]
        return Window(
            entity=entity,
            max_delivery_count=int(told["MaxDeliveryCount"]),
            lock=_seconds(told["LockDuration"]) or 0.0,
            time_to_live=min(lives, default=None),
            dead_letters=dead_letters,
        )

    for queue in namespace.get("Queues") or ():
        yield window(queue["Name"], queue.get("Properties") or {}, {})
    for topic in namespace.get("Topics") or ():
        for each in topic.get("Subscriptions") or ():
            name = f"{topic['Name']}/{each['Name']}"
            yield window(name, each.get("Properties") or {}, topic.get("Properties") or {})


async def windows_of_namespace(
    client: "ServiceBusAdministrationClient", *, dead_letters: float
) -> list[Window]:
    """The windows of a namespace. The SDK's own errors come through: a credential may lack the right."""
    windows = [
        _window(queue.name, queue, None, dead_letters) async for queue in client.list_queues()
    ]
    async for topic in client.list_topics():
        async for each in client.list_subscriptions(topic.name):
            life = topic.default_message_time_to_live
            windows.append(_window(f"{topic.name}/{each.name}", each, life, dead_letters))
    return windows


def _window(entity: str, told: Any, topic_life: Any, dead_letters: float) -> Window:
    lives = [
        life
        for each in (told.default_message_time_to_live, topic_life)
        if (life := _seconds(each)) is not None
    ]
    return Window(
        entity=entity,
        max_delivery_count=int(told.max_delivery_count),
        lock=_seconds(told.lock_duration) or 0.0,
        time_to_live=min(lives, default=None),
        dead_letters=dead_letters,
    )


def _seconds(duration: Any) -> float | None:
    """Seconds of an ISO 8601 duration or a timedelta; None for "never", and when there is none."""
    if duration is None:
        return None
    if not isinstance(duration, timedelta):
        found = _DURATION.fullmatch(str(duration))
        parts = {unit: float(n) for unit, n in found.groupdict().items() if n} if found else {}
        if not parts:
            raise ValueError(f"{duration!r} is no duration of days, hours, minutes and seconds")
        duration = timedelta(**parts)
    seconds: float = duration.total_seconds()
    return None if seconds >= _NEVER else seconds


def complaints(
    windows: Iterable[Window], policy: Policy, *, entities: Collection[str] | None = None
) -> list[str]:
    """What does not go together between the broker and a policy, in words with the numbers.

    ``entities``: only these, of those that consumers read; all by default.
    """
    told: list[str] = []
    for window in windows:
        if entities is not None and window.entity not in entities:
            continue
        too_short = complaint(window, retention=policy.retention, max_age=policy.max_age)
        if too_short:
            told.append(too_short)
        least = max(SHORTEST_LOCK, policy.wait)
        if window.lock < least:
            told.append(
                f"{window.entity}: its LockDuration of {window.lock:g} s is too short: a duplicate waits "
                f"{policy.wait:g} s for an attempt in flight, a message that must come back is held, and "
                f"meanwhile it would be handed out again. Set LockDuration to {least:g} s or more"
            )
        longest = policy.wait * (window.max_delivery_count - 1)
        if policy.deadline > longest:
            told.append(
                f"{window.entity}: a handler may take {policy.deadline:g} s, but the duplicates of a "
                f"slow message are dead-lettered after wait x (max delivery count - 1) = {longest:g} s"
            )
    return told
