"""The promises about a handler that is one effect as a whole, and about an inbox's transaction."""

from collections.abc import Collection
from typing import Any

from ..records import Outcome, Record
from .truth import Broken, Held, Run


class PlainEffects:
    """The truth about the one effect of a plain handler."""

    def __init__(self) -> None:
        self._executed: list[Run] = []
        """The append-only log of effects."""

    def effect(self, run: Run) -> None:
        """A handler has its effect."""
        for earlier in self._executed:
            if earlier is run:
                raise Broken("one attempt had its effect twice")
            if earlier.content != run.content and not earlier.forgotten:
                raise Broken("both contents of one key had their effect")
            if not earlier.may_be_repeated and not run.stalled:
                raise Broken(
                    f"{run.delivery} repeats the effect of {earlier.delivery}, whose attempt neither "
                    "crashed, nor lost its lease, nor failed"
                )
        self.committed(run)

    def committed(self, run: Run) -> None:
        """An effect that its transaction guards."""
        run.executed = True
        self._executed.append(run)

    # --- what the record says ------------------------------------------------------------------

    def any(self) -> bool:
        return bool(self._executed)

    def wrote(self, before: Held | None, after: Held) -> None:
        """What a record says of a plain effect is that its handler returned."""

    def deleted(self, owner: str) -> None:
        """Runs note by themselves that they are forgotten: an effect that raises says it was none."""

    def allows(self, outcome: Outcome) -> bool:
        return False

    def check_end(self, record: Record) -> None:
        effects = len({run.content for run in self._executed if not run.forgotten})
        if effects != 1:
            raise Broken(f"a provider that honours the downstream key counts {effects} effects")

    # --- for the comparison of states ----------------------------------------------------------

    def of_run(self, run: Run) -> tuple[Any, ...]:
        return run.executed, run.may_be_repeated, run.stalled, run.forgotten, run.late_renewals

    def summary(self, alive: Collection[str], now: float) -> Any:
        return frozenset(
            (run.content, run.may_be_repeated, run.forgotten)
            for run in self._executed
            if run.owner not in alive
        )
