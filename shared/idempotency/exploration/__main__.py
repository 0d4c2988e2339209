"""Explore from the command line: ``python -m shared.idempotency.exploration --help``."""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TextIO

import msgspec

from .scenario import Scenario
from .scenarios import DEFAULT, QUICK
from .search import Exploration, explained


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Run the explorations chosen; 0 when every one was complete and none found a violation."""
    options = _parser().parse_args(arguments)
    chosen = _chosen(options)
    if not chosen:
        sys.stderr.write("no exploration is of that form and number of deliveries\n")
        return 2
    told = sys.stderr if options.json else out
    if (at_once := min(options.jobs, len(chosen))) > 1:
        found = _side_by_side(chosen, options.seconds or None, at_once, told)
    else:
        found = _one_by_one(chosen, options.seconds or None, told)
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
    parser.add_argument("--deliveries", type=int, help="only explorations with so many (1, 2 or 3)")
    parser.add_argument("--form", choices=("two-phase", "steps", "inbox"), help="only that form")
    parser.add_argument(
        "--faults", type=int, help="so many faults in one schedule, instead of each own"
    )
    parser.add_argument(
        "--quick", action="store_true", help="the few seconds' worth of the fast tests"
    )
    parser.add_argument(
        "--seconds", type=float, help="stop each after so long; it then counts as failed"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.process_cpu_count() or 1,
        help="so many explorations at a time, each in a process of its own (default: all processors)",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON instead of text")
    return parser


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    chosen = [
        scenario
        for scenario in (QUICK if options.quick else DEFAULT)
        if options.deliveries in (None, len(scenario.messages))
        and options.form in (None, "steps" if scenario.plan else scenario.form)
    ]
    if options.faults is None:
        return chosen
    return [msgspec.structs.replace(scenario, faults=options.faults) for scenario in chosen]


def _one_by_one(
    chosen: Sequence[Scenario], seconds: float | None, out: TextIO
) -> list[Exploration]:
    found: list[Exploration] = []
    for scenario in chosen:
        progress = _Progress(out)
        found.append(explained(scenario, progress=progress.tell, most_seconds=seconds))
        progress.end(found[-1])
    return found


def _side_by_side(
    chosen: Sequence[Scenario], seconds: float | None, at_once: int, out: TextIO
) -> list[Exploration]:
    # spawned, as a fork would take over locks of threads that it does not take over
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as processes:
        running = [
            processes.submit(explained, scenario, most_seconds=seconds) for scenario in chosen
        ]
        for explored in as_completed(running):
            _Progress(out).end(explored.result())
    return [explored.result() for explored in running]


class _Progress:
    """One line per exploration; while it runs, rewritten on a terminal, else a line now and then."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = 0.0

    def tell(self, found: Exploration) -> None:
        if self._out.isatty():
            self._out.write(f"\r{_line(found)} ...")
        elif found.seconds - self._told >= 10:
            self._told = found.seconds
            self._out.write(f"{_line(found)} ...\n")
        self._out.flush()

    def end(self, found: Exploration) -> None:
        start = "\r" if self._out.isatty() else ""
        verdict = "VIOLATION" if found.violations else "ok" if found.complete else "stopped early"
        self._out.write(f"{start}{_line(found)}  {verdict}\n")
        self._out.flush()


def _line(found: Exploration) -> str:
    name = f"{found.scenario} (faults: {found.faults})"
    return (
        f"{name:<50} {found.schedules:>7} schedules {found.states:>7} states "
        f"{found.merged:>7} merged {found.seconds:6.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
