"""Explore from the command line: ``python -m shared.idempotency.exploration --help``."""

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec

from .scenario import Scenario
from .scenarios import DEFAULT, QUICK
from .search import Exploration, explore, simplest


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run the explorations chosen; 0 when every one was complete and none found a violation."""
    options = _parser().parse_args(arguments)
    chosen = _chosen(options)
    if not chosen:
        sys.stderr.write("no exploration is of that form and number of deliveries\n")
        return 2
    found: list[Exploration] = []
    for scenario in chosen:
        progress = _Progress(sys.stderr if options.json else out, scenario)
        exploration = explore(
            scenario, progress=progress.tell, most_seconds=options.seconds or None
        )
        if exploration.violations and scenario.faults:
            exploration.violations = simplest(scenario).violations
        progress.end(exploration)
        found.append(exploration)
    violations = [violation for exploration in found for violation in exploration.violations]
    schedules = sum(exploration.schedules for exploration in found)
    if options.json:
        out.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        for violation in violations:
            out.write(f"\n{violation}\n")
        out.write(f"schedules explored: {schedules}, violations: {len(violations)}\n")
    return 1 if violations or not all(exploration.complete for exploration in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shared.idempotency.exploration",
        description="Runs the real consumer through every interleaving of its store calls, with faults.",
    )
    parser.add_argument("--deliveries", type=int, help="only explorations with so many (2 or 3)")
    parser.add_argument("--form", choices=("two-phase", "inbox"), help="only that form")
    parser.add_argument(
        "--faults", type=int, help="so many faults in one schedule, instead of each own"
    )
    parser.add_argument(
        "--quick", action="store_true", help="the few seconds' worth of the fast tests"
    )
    parser.add_argument(
        "--seconds", type=float, help="stop each after so long; it then counts as failed"
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON instead of text")
    return parser


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    chosen = [
        scenario
        for scenario in (QUICK if options.quick else DEFAULT)
        if options.deliveries in (None, len(scenario.messages))
        and options.form in (None, scenario.form)
    ]
    if options.faults is None:
        return chosen
    return [msgspec.structs.replace(scenario, faults=options.faults) for scenario in chosen]


class _Progress:
    """One line per exploration; while it runs, rewritten on a terminal, else a line now and then."""

    def __init__(self, out: TextIO, scenario: Scenario) -> None:
        self._out = out
        self._name = f"{scenario.name} (faults: {scenario.faults})"
        self._told = 0.0

    def tell(self, found: Exploration) -> None:
        if self._out.isatty():
            self._out.write(f"\r{self._line(found)} ...")
        elif found.seconds - self._told >= 10:
            self._told = found.seconds
            self._out.write(f"{self._line(found)} ...\n")
        self._out.flush()

    def end(self, found: Exploration) -> None:
        start = "\r" if self._out.isatty() else ""
        verdict = "VIOLATION" if found.violations else "ok" if found.complete else "stopped early"
        self._out.write(f"{start}{self._line(found)}  {verdict}\n")
        self._out.flush()

    def _line(self, found: Exploration) -> str:
        return (
            f"{self._name:<50} {found.schedules:>7} schedules {found.states:>7} states "
            f"{found.merged:>7} merged {found.seconds:6.1f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
