"""Faults on demand: settlements that get lost, stay unanswered, or come too late.

Each fault waits for the next settlement of a message (complete, abandon, defer, dead-letter) on
one entity, `times` over; the giving back of unprocessed messages when a client closes is never
touched.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .errors import LockLost
from .message import Outcome
from .settlement import Settlement

OnBrokerThread = Callable[[Callable[[], None]], None]
"""Runs a function on the broker's thread, where all state lives, and waits for its end."""


class HeldSettlement:
    """A settlement that arrives and is neither applied nor answered until released."""

    def __init__(self, run: OnBrokerThread) -> None:
        self._run = run
        self._arrived = threading.Event()
        self._released = False
        self._settlement: Settlement | None = None

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the settlement; whether it has arrived."""
        return self._arrived.wait(timeout)

    def release(self) -> None:
        """Let it take its course; if its connection is gone by now, it is lost."""
        self._run(self._let_go)

    def arrive(self, settlement: Settlement) -> None:
        """Hold it, unless it was released beforehand. Broker's thread only."""
        self._settlement = settlement
        self._arrived.set()
        if self._released:
            self._let_go()

    def _let_go(self) -> None:
        self._released = True
        settlement, self._settlement = self._settlement, None
        if settlement is not None and settlement.is_connected():
            settlement.apply_and_answer()


@dataclass(slots=True)
class _Trap:
    queue_name: str
    message_id: str | None
    times: int
    strike: Callable[[Settlement], None]

    def catches(self, settlement: Settlement) -> bool:
        if settlement.queue.name != self.queue_name:
            return False
        return self.message_id is None or settlement.message_id == self.message_id


class Faults:
    """The faults that wait for their settlement. Thread-safe."""

    def __init__(self, run: OnBrokerThread, canonical_name: Callable[[str], str]) -> None:
        self._run = run
        self._canonical_name = canonical_name
        self._traps: list[_Trap] = []

    def lose_settlement_answer(
        self, entity: str, message_id: str | None = None, times: int = 1
    ) -> None:
        """Apply the settlement, then cut the connection instead of answering."""

        def strike(settlement: Settlement) -> None:
            settlement.apply()
            settlement.disconnect()

        self._set(entity, message_id, times, strike)

    def lose_settlement(self, entity: str, message_id: str | None = None, times: int = 1) -> None:
        """Cut the connection before the settlement takes effect; only expiry ends the lock.

        A client that settles once more over another connection is told that the lock is lost.
        """

        def strike(settlement: Settlement) -> None:
            settlement.queue.find_lock(settlement.token).forsaken = True
            settlement.disconnect()

        self._set(entity, message_id, times, strike)

    def expire_lock(self, entity: str, message_id: str | None = None, times: int = 1) -> None:
        """Let the lock end just before the settlement: stale answer, delivery counted."""

        def strike(settlement: Settlement) -> None:
            settlement.queue.expire(settlement.token)
            settlement.apply_and_answer()

        self._set(entity, message_id, times, strike)

    def hold_settlement(self, entity: str, message_id: str | None = None) -> HeldSettlement:
        """Leave the settlement hanging until the test or the demo releases it."""
        held = HeldSettlement(self._run)
        self._set(entity, message_id, 1, held.arrive)
        return held

    def meet(self, settlement: Settlement) -> None:
        """Give a settlement its course, with the first fault that fits. Broker's thread only."""
        trap = self._spring(settlement)
        if trap is None:
            settlement.apply_and_answer()
        else:
            trap.strike(settlement)

    def _spring(self, settlement: Settlement) -> _Trap | None:
        if not self._traps or settlement.disposition.outcome is Outcome.RELEASED:
            return None
        try:
            settlement.queue.find_lock(settlement.token)
        except LockLost:
            return None
        trap = next((trap for trap in self._traps if trap.catches(settlement)), None)
        if trap is not None:
            trap.times -= 1
            if trap.times == 0:
                self._traps.remove(trap)
        return trap

    def _set(
        self,
        entity: str,
        message_id: str | None,
        times: int,
        strike: Callable[[Settlement], None],
    ) -> None:
        trap = _Trap(self._canonical_name(entity), message_id, times, strike)
        self._run(lambda: self._traps.append(trap))
