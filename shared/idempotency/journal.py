"""What one attempt knows of its steps: which were asked for, and how each of them stands. No I/O."""

from enum import Enum, auto

import msgspec

from .records import Record, Step


class Standing(Enum):
    """How a step stands."""

    DOUBTED = auto()
    """An earlier attempt may have called it, and no policy has settled that yet."""
    OPEN = auto()
    """This attempt's call is under way."""
    UNCERTAIN = auto()
    """This attempt's call ended, and what it did is not known."""
    DONE = auto()


class Entry(msgspec.Struct):
    """One step; ``result`` is JSON text, None when it could not be kept."""

    name: str
    standing: Standing
    begun_at: float
    deadline: float
    result: str | None = None
    recorded: bool = False


class Journal:
    """The steps of one attempt, beginning with what earlier attempts recorded.

    ``taken_over``: an earlier attempt died or ended in doubt, so that any step it did not record may
    have been called.
    """

    def __init__(self, record: Record, *, taken_over: bool) -> None:
        self.taken_over = taken_over
        self.doubt_was_settled = False
        """Whether an unrecorded step of the earlier attempt was settled by this one."""
        self.ruled_out = False
        self._entries: dict[str, Entry] = {
            step.name: Entry(
                step.name,
                Standing.DONE if step.done else Standing.DOUBTED,
                step.begun_at,
                step.deadline,
                step.result,
                recorded=True,
            )
            for step in record.steps
        }
        self._before = tuple(self._entries)
        self._asked: dict[str, None] = {}

    # -- what happens

    def ask(self, name: str) -> Entry | None:
        """Note that the handler asks for a step; what is known of it."""
        self._asked[name] = None
        return self._entries.get(name)

    def was_asked(self, name: str) -> bool:
        return name in self._asked

    def stands(self, name: str, standing: Standing, *, at: float, deadline: float) -> Entry:
        """Note how a step stands now, at ``at`` seconds since the epoch."""
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = Entry(name, standing, at, deadline)
        if standing is Standing.OPEN:
            entry.begun_at, entry.deadline = at, deadline
        if standing is Standing.DONE:
            self.doubt_was_settled = True
        entry.standing = standing
        entry.recorded = False
        return entry

    def settle_as_absent(self, name: str) -> None:
        """Note that a step's effect is surely not there."""
        self._entries.pop(name, None)
        self.doubt_was_settled = True

    def rule_out(self) -> None:
        """Note that no attempt at this message can have called anything."""
        self.ruled_out = True

    # -- what follows from it

    def steps(self, *, with_results: bool = True) -> tuple[Step, ...]:
        """All steps as they are written down, in the order in which they began."""
        return tuple(
            Step(
                name=entry.name,
                begun_at=entry.begun_at,
                deadline=entry.deadline,
                done=entry.standing is Standing.DONE,
                result=entry.result if with_results else None,
            )
            for entry in self._entries.values()
        )

    def bytes_of_results(self) -> int:
        """What the results take in the record."""
        return sum(len(entry.result.encode()) for entry in self._entries.values() if entry.result)

    def unrecorded(self) -> list[Entry]:
        """Steps that are done, and not written down yet."""
        return [
            entry
            for entry in self._entries.values()
            if entry.standing is Standing.DONE and not entry.recorded
        ]

    def in_flight(self) -> list[str]:
        """Steps whose call by this attempt may still have its effect."""
        return self._asked_in(Standing.OPEN, Standing.UNCERTAIN)

    def unknown(self) -> list[str]:
        """Steps that the handler asked for, and whose effect nobody knows."""
        return self._asked_in(Standing.OPEN, Standing.UNCERTAIN, Standing.DOUBTED)

    def out_of_reach(self) -> list[str]:
        """Steps in doubt that the handler did not ask for."""
        return [
            entry.name
            for entry in self._entries.values()
            if entry.standing is Standing.DOUBTED and entry.name not in self._asked
        ]

    def none_asked(self) -> bool:
        return not self._asked

    def any_done(self) -> bool:
        return any(entry.standing is Standing.DONE for entry in self._entries.values())

    def changed(self) -> tuple[tuple[str, ...], bool]:
        """Recorded steps that the handler did not ask for, and whether it asked in another order."""
        asked = [name for name in self._asked if name in self._before]
        expected = [name for name in self._before if name in self._asked]
        return tuple(name for name in self._before if name not in self._asked), asked != expected

    def _asked_in(self, *standings: Standing) -> list[str]:
        return [
            entry.name
            for entry in self._entries.values()
            if entry.standing in standings and entry.name in self._asked
        ]
