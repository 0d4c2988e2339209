"""Things that fall due at a moment, cheap to add, to take back and to ask for the next one."""

import heapq
from collections.abc import Iterator


class Timetable:
    """Sequence numbers by the moment they fall due.

    Taking one back leaves its heap entry behind; entries that no longer hold are skipped when
    they surface, and swept out when they outnumber the rest.
    """

    def __init__(self) -> None:
        self._moments: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, number: int) -> bool:
        return number in self._moments

    def add(self, number: int, moment: float) -> None:
        """Let `number` fall due at `moment`."""
        self._moments[number] = moment
        heapq.heappush(self._heap, (moment, number))

    def discard(self, number: int) -> None:
        """Take `number` back, if it is still there."""
        if self._moments.pop(number, None) is not None and len(self._heap) > 64 + 2 * len(self):
            self._heap = [(moment, each) for each, moment in self._moments.items()]
            heapq.heapify(self._heap)

    def next_moment(self) -> float | None:
        """When the next one falls due; None if there is none."""
        while self._heap:
            moment, number = self._heap[0]
            if self._moments.get(number) == moment:
                return moment
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> Iterator[int]:
        """Take out, in order, all that fell due by `now`."""
        while (moment := self.next_moment()) is not None and moment <= now:
            number = heapq.heappop(self._heap)[1]
            del self._moments[number]
            yield number
