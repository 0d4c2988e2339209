"""Things that fall due at a moment, cheap to add, to take back and to ask for the next one."""

import heapq
from collections.abc import Iterable, Iterator


class Timetable[T]:
    """Items by number, and the moment each falls due.

    Taking one back leaves its heap entry behind; entries that no longer hold are skipped when
    they surface, and swept out when they outnumber the rest.
    """

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> Iterable[T]:
        """All that has not fallen due."""
        return self._items.values()

    def add(self, number: int, moment: float, item: T) -> None:
        """Let `item` fall due at `moment`, under a number that is used once only."""
        self._items[number] = item
        heapq.heappush(self._heap, (moment, number))

    def take_back(self, number: int) -> T | None:
        """Take one out before its time; None if it is not there."""
        item = self._items.pop(number, None)
        if len(self._heap) > 64 + 2 * len(self):
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapq.heapify(self._heap)
        return item

    def next_moment(self) -> float | None:
        """When the next one falls due; None if there is none."""
        while self._heap and self._heap[0][1] not in self._items:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[T]:
        """Take out, in order, all that fell due by `now`."""
        while (moment := self.next_moment()) is not None and moment <= now:
            yield self._items.pop(heapq.heappop(self._heap)[1])
