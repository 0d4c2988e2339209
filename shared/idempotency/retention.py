"""How long a message can still come back, and whether records are kept at least as long.

A broker can hand out a message again until its last delivery has ended (max delivery count x lock),
or it has expired (time to live), or somebody re-sent it from the dead letters, where nothing expires.
A record that is gone before then is a duplicate that runs. A re-sent dead letter lives anew: who
re-sends more than once relies on ``max_age``, which counts from the first sending. All in seconds.
"""

import math

import msgspec


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue or subscription is set to, in seconds.

    ``time_to_live`` None: messages never expire. ``dead_letters``: for how long a dead letter may lie
    before it is re-sent; the broker does not limit it, so it is the operators' own promise.
    """

    entity: str
    max_delivery_count: int
    lock: float
    time_to_live: float | None
    dead_letters: float

    @property
    def seconds(self) -> float:
        """For how long a message can come back; infinite without a time to live."""
        if self.time_to_live is None:
            return math.inf
        return self.max_delivery_count * self.lock + self.time_to_live + self.dead_letters


def shortfall(window: Window, retention: float) -> float:
    """By how many hours records go before messages may; 0 when they are kept long enough."""
    return max(0.0, (window.seconds - retention) / 3600)


def complaint(window: Window, *, retention: float, max_age: float | None) -> str | None:
    """What is wrong with keeping records for ``retention`` seconds, in words with the numbers; or None.

    A ``max_age`` within the retention settles it: what is older than its record is refused as too old.
    Without a time to live there is no window to compare with, and ``max_age`` has to be declared.
    """
    if max_age is not None and max_age <= retention:
        return None
    if window.time_to_live is None:
        return (
            f"{window.entity}: messages never expire, so no retention is long enough; "
            "declare max_age, or set a time to live"
        )
    hours = shortfall(window, retention)
    if not hours:
        return None
    return (
        f"{window.entity}: records are kept for {retention / 3600:g} h, but a message can come back for "
        f"{window.seconds / 3600:g} h ({window.max_delivery_count} deliveries x {window.lock:g} s lock "
        f"+ {window.time_to_live / 3600:g} h time to live + {window.dead_letters / 3600:g} h as a dead "
        f"letter): {hours:g} h too short. A duplicate in that time runs again"
    )
