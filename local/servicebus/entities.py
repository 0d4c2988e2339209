"""The entities a broker serves, read from the official emulator's Config.json shape."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from .durations import FOREVER, parse_duration


class EntitiesError(ValueError):
    """The entity file asks for something this broker cannot do, or names nothing it knows."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue or, without a detection window of its own, a topic's subscription.

    `time_to_live` None: messages never expire. `detection_window` None: no duplicate detection.
    """

    name: str
    lock: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    time_to_live: timedelta | None = None
    dead_letter_on_expiration: bool = False
    detection_window: timedelta | None = None
    requires_session: bool = False

    def __post_init__(self) -> None:
        if self.lock <= timedelta(0) or self.max_delivery_count < 1:
            raise EntitiesError(
                f"{self.name}: lock duration and max delivery count must be positive"
            )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic, its own detection window and its subscriptions."""

    name: str
    time_to_live: timedelta | None = None
    detection_window: timedelta | None = None
    subscriptions: tuple[QueueSettings, ...] = ()


class QueueChanges(TypedDict, total=False):
    """What a test or the demo may change on one queue or subscription."""

    lock: timedelta
    max_delivery_count: int
    time_to_live: timedelta | None
    dead_letter_on_expiration: bool
    detection_window: timedelta | None
    requires_session: bool


class TopicChanges(TypedDict, total=False):
    """What a test or the demo may change on one topic."""

    time_to_live: timedelta | None
    detection_window: timedelta | None


@dataclass(frozen=True, slots=True)
class Entities:
    """All queues and topics of one namespace."""

    queues: tuple[QueueSettings, ...] = ()
    topics: tuple[TopicSettings, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an entity file; EntitiesError names the file and what is wrong in it."""
        try:
            return cls.parse(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EntitiesError(f"{path}: {type(error).__name__}: {error}") from error

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Self:
        """Read the decoded Config.json of the emulator; it must hold exactly one namespace."""
        [namespace] = config["UserConfig"]["Namespaces"]
        return cls(
            queues=tuple(_queue(entry) for entry in namespace.get("Queues", ())),
            topics=tuple(_topic(entry) for entry in namespace.get("Topics", ())),
        )

    def names(self) -> tuple[str, ...]:
        """Every address a client may use: queues, topics, `topic/subscriptions/name`."""
        return tuple(self._names())

    def queue(self, name: str) -> QueueSettings:
        """The settings of a queue or of `topic/subscriptions/name`; EntitiesError if unknown."""
        for path, settings in self._consumable():
            if path.lower() == name.lower():
                return settings
        raise EntitiesError(f"no queue or subscription {name!r}; there are {self.names()}")

    def topic(self, name: str) -> TopicSettings:
        """The settings of a topic; EntitiesError if unknown."""
        for settings in self.topics:
            if settings.name.lower() == name.lower():
                return settings
        raise EntitiesError(f"no topic {name!r}; there are {self.names()}")

    def with_queue(self, name: str, **changes: Unpack[QueueChanges]) -> "Entities":
        """The same entities with one queue, or one `topic/subscriptions/name`, changed."""
        old = self.queue(name)
        new = replace(old, **changes)

        def swapped(all_: tuple[QueueSettings, ...]) -> tuple[QueueSettings, ...]:
            return tuple(new if settings is old else settings for settings in all_)

        topics = (replace(t, subscriptions=swapped(t.subscriptions)) for t in self.topics)
        return Entities(queues=swapped(self.queues), topics=tuple(topics))

    def with_topic(self, name: str, **changes: Unpack[TopicChanges]) -> "Entities":
        """The same entities with one topic changed."""
        old = self.topic(name)
        topics = (replace(old, **changes) if t is old else t for t in self.topics)
        return replace(self, topics=tuple(topics))

    def _names(self) -> Iterator[str]:
        yield from (queue.name for queue in self.queues)
        for topic in self.topics:
            yield topic.name
            yield from (_subscription_path(topic, each) for each in topic.subscriptions)

    def _consumable(self) -> Iterator[tuple[str, QueueSettings]]:
        yield from ((queue.name, queue) for queue in self.queues)
        for topic in self.topics:
            yield from ((_subscription_path(topic, each), each) for each in topic.subscriptions)


def _subscription_path(topic: TopicSettings, subscription: QueueSettings) -> str:
    return f"{topic.name}/subscriptions/{subscription.name}"


_QUEUE_PROPERTIES = {
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "DuplicateDetectionHistoryTimeWindow",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresDuplicateDetection",
    "RequiresSession",
}


def _queue(entry: Mapping[str, Any]) -> QueueSettings:
    properties = _properties(entry)
    if entry.get("Rules"):
        raise EntitiesError(f"{entry['Name']}: subscription rules are not supported here")
    defaults = QueueSettings(entry["Name"])
    lock = properties.get("LockDuration")
    return QueueSettings(
        name=entry["Name"],
        lock=parse_duration(lock) if lock else defaults.lock,
        max_delivery_count=int(properties.get("MaxDeliveryCount", defaults.max_delivery_count)),
        time_to_live=_time_to_live(properties),
        dead_letter_on_expiration=bool(properties.get("DeadLetteringOnMessageExpiration", False)),
        detection_window=_detection_window(properties),
        requires_session=bool(properties.get("RequiresSession", False)),
    )


def _topic(entry: Mapping[str, Any]) -> TopicSettings:
    properties = _properties(entry)
    return TopicSettings(
        name=entry["Name"],
        time_to_live=_time_to_live(properties),
        detection_window=_detection_window(properties),
        subscriptions=tuple(_queue(each) for each in entry.get("Subscriptions", ())),
    )


def _properties(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is set; what this broker would have to ignore silently is refused."""
    properties = {key: value for key, value in entry.get("Properties", {}).items() if value != ""}
    unknown = sorted(properties.keys() - _QUEUE_PROPERTIES)
    if unknown:
        raise EntitiesError(f"{entry['Name']}: {', '.join(unknown)} not supported here")
    return properties


def _time_to_live(properties: Mapping[str, Any]) -> timedelta | None:
    text = properties.get("DefaultMessageTimeToLive")
    duration = parse_duration(text) if text else FOREVER
    return duration if duration < FOREVER else None


def _detection_window(properties: Mapping[str, Any]) -> timedelta | None:
    if not properties.get("RequiresDuplicateDetection", False):
        return None
    return parse_duration(properties.get("DuplicateDetectionHistoryTimeWindow", "PT10M"))
