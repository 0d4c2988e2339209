"""Waiting for an attempt in flight: bounded in time, and in how many wait at once."""

import msgspec

from .clock import Clock, jittered

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_SHORTEST_PAUSE = 0.05


class WaitingRoom(msgspec.Struct):
    """The slots of one consumer in this process: one hot key must not keep the host from the rest."""

    slots: int
    taken: int = 0


class Patience:
    """One delivery's wait; ``seconds`` in all, with pauses that grow and are jittered."""

    def __init__(self, room: WaitingRoom, clock: Clock, seconds: float) -> None:
        self._room = room
        self._clock = clock
        self._give_up = clock.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    async def wait(self, at_most: float) -> bool:
        """Pause for a while, not beyond ``at_most`` seconds; False when it is time to give up.

        That is when the time is over, or when all slots are taken.
        """
        left = self._give_up - self._clock.monotonic()
        if left <= 0 or self._room.taken >= self._room.slots:
            return False
        self._room.taken += 1
        try:
            pause = min(jittered(self._pause), left, max(at_most, _SHORTEST_PAUSE))
            await self._clock.sleep(pause)
        finally:
            self._room.taken -= 1
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True
