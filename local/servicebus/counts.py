"""What a queue has seen so far, and what it holds now."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Running totals of one entity."""

    sent: int = 0
    dropped_by_detection: int = 0
    delivered: int = 0
    completed: int = 0
    abandoned: int = 0
    released: int = 0
    dead_lettered: int = 0
    expired: int = 0
    locks_expired: int = 0
    stale_settlements: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals since the broker was made, then what the entity holds at this moment.

    `sent` counts every message that reached the entity, those dropped by its duplicate detection
    included. `delivered` counts hand-overs, redeliveries included. `released` are deliveries that
    a client gave back unprocessed, `stale_settlements` those refused because the lock was lost,
    `expired` messages whose time-to-live ended (dead-lettered or dropped). `dead` is the number
    of messages in the dead-letter queue.
    """

    sent: int = 0
    dropped_by_detection: int = 0
    delivered: int = 0
    completed: int = 0
    abandoned: int = 0
    released: int = 0
    dead_lettered: int = 0
    expired: int = 0
    locks_expired: int = 0
    stale_settlements: int = 0
    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead: int = 0
