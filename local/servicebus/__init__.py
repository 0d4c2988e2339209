"""A Service Bus broker in memory, for the unmodified SDK: tests, the demo and `make start`."""

from .broker import Broker
from .clock import Clock
from .counts import Counts
from .entities import Entities, EntitiesError, QueueSettings, TopicSettings
from .errors import EntityNotFound
from .faults import HeldSettlement
from .message import Snapshot

__all__ = [
    "Broker",
    "Clock",
    "Counts",
    "Entities",
    "EntitiesError",
    "EntityNotFound",
    "HeldSettlement",
    "QueueSettings",
    "Snapshot",
    "TopicSettings",
]
