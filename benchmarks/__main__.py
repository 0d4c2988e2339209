"""`python -m benchmarks [NAME ...]`: run benchmarks, print what they found, keep it in results.json."""
# ruff: noqa: T201 - a report to the terminal

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from . import cold_start, in_process
from .frame import RESULTS, Figures, machine, write

type Benchmark = Callable[..., Figures]

BENCHMARKS: dict[str, Benchmark] = {
    "in-process": in_process.measure,
    "cold-start": cold_start.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[*BENCHMARKS, []], help="all without one")
    parser.add_argument("--quick", action="store_true", help="only see that it runs: no figures")
    parser.add_argument("--json", action="store_true", help="print JSON, nothing else")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where they are kept")
    options = parser.parse_args()
    err = Console(stderr=True)
    about = machine()
    found = {}
    for name in options.name or BENCHMARKS:
        with err.status(name) as status:
            found[name] = BENCHMARKS[name](
                quick=options.quick,
                told=lambda text, name=name: status.update(f"{name}: {text}"),
            )
        if not options.json:
            show(found[name])
    write(found, {**about, "quick": options.quick}, options.results)
    if options.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    return 0


def show(figures: Figures) -> None:
    """A table for a person."""
    table = Table(title=figures.title, title_justify="left")
    table.add_column("")
    for heading in ("median", "least", "most"):
        table.add_column(heading, justify="right")
    for name, each in figures.figures.items():
        row = [f"{value:,.1f} {each.unit}" for value in (each.median, each.least, each.most)]
        table.add_row(name, *row)
    console = Console()
    console.print(table)
    for name, ratio in figures.ratios.items():
        console.print(f"{name}: {ratio:.2f}   (goal {figures.goals[name]})", highlight=False)
    for note in figures.notes:
        console.print(f"- {note}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
