"""A topic: detects duplicates at its own door, then gives every subscription a copy."""

import itertools
from dataclasses import replace

from .clock import Clock
from .counts import Counts
from .detection import DetectionHistory
from .entities import TopicSettings
from .errors import MessageNotFound
from .message import Content
from .queue import Queue
from .timetable import Timetable


class Topic:
    """The fan-out of one topic. A scheduled message is copied when it falls due."""

    def __init__(
        self, settings: TopicSettings, clock: Clock, subscriptions: tuple[Queue, ...]
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._clock = clock
        self._subscriptions = subscriptions
        self._history = DetectionHistory(settings.detection_window, clock)
        self._numbers = itertools.count(1)
        self._scheduled = Timetable[Content]()
        self._sent = 0
        self._dropped = 0

    def send(self, content: Content) -> int | None:
        """Let a message in; its sequence number, or None if it was dropped as a duplicate."""
        self.sweep()
        self._sent += 1
        if self._history.is_repeat(content.message_id):
            self._dropped += 1
            return None
        number = next(self._numbers)
        if content.scheduled_for is not None and content.scheduled_for > self._clock.now():
            self._scheduled.add(number, content.scheduled_for, content)
        else:
            self._copy(content)
        return number

    def cancel(self, number: int) -> None:
        """Take back a scheduled message; MessageNotFound if it is not, or no longer, there."""
        self.sweep()
        if self._scheduled.take_back(number) is None:
            raise MessageNotFound(f"There is no scheduled message {number}.")

    def sweep(self) -> None:
        """Copy what fell due."""
        for content in self._scheduled.pop_due(self._clock.now()):
            self._copy(content)

    def next_moment(self) -> float | None:
        """When `sweep` will next have something to do."""
        return self._scheduled.next_moment()

    def counts(self) -> Counts:
        """What came in; what became of it, its subscriptions know."""
        self.sweep()
        return Counts(
            sent=self._sent, dropped_by_detection=self._dropped, scheduled=len(self._scheduled)
        )

    def _copy(self, content: Content) -> None:
        limit = self._settings.time_to_live
        if limit is not None:
            own = content.time_to_live
            seconds = limit.total_seconds()
            content = replace(content, time_to_live=seconds if own is None else min(own, seconds))
        for subscription in self._subscriptions:
            subscription.send(content)
