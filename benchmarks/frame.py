"""What all benchmarks share: rounds in turn, medians and spread, facts of the machine, the results' file."""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).with_name("results.json")
_DISTRIBUTIONS = (
    "aws-lambda-powertools",
    "azure-cosmos",
    "azure-data-tables",
    "azure-functions",
    "msgspec",
)


class Measured(msgspec.Struct, frozen=True):
    """One figure: the median of its rounds, and the least and the most of them, in ``unit``."""

    median: float
    least: float
    most: float
    rounds: int
    unit: str

    @classmethod
    def of(cls, samples: list[float], unit: str) -> "Measured":
        return cls(
            round(statistics.median(samples), 3),
            round(min(samples), 3),
            round(max(samples), 3),
            len(samples),
            unit,
        )

    def __str__(self) -> str:
        return f"{self.median:,.2f} {self.unit} ({self.least:,.2f}-{self.most:,.2f})"


class Figures(msgspec.Struct, frozen=True):
    """What one benchmark found: figures by name, ratios to their goals, and what to know about them."""

    title: str
    figures: dict[str, Measured]
    ratios: dict[str, float] = {}
    goals: dict[str, str] = {}
    notes: list[str] = []


def in_turn(
    contestants: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    unit: str,
    told: Callable[[str], None],
) -> dict[str, Measured]:
    """Each contestant once a round, in turn, so that whatever slows the machine slows them alike.

    The first round warms up and is thrown away.
    """
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            figure = contestant()
            if number:
                samples[name].append(figure)
        told(f"round {number} of {rounds}")
    return {name: Measured.of(found, unit) for name, found in samples.items()}


def machine() -> dict[str, Any]:
    """Where the figures are of."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _DISTRIBUTIONS},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None


def seconds_of(command: list[str], environment: Mapping[str, str]) -> float:
    """How long a process takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run(  # noqa: S603 - this repository's own
        command, check=True, env=dict(environment), capture_output=True
    )
    return time.perf_counter() - began


def write(results: Mapping[str, Figures], about: Mapping[str, Any], file: Path = RESULTS) -> None:
    """Keep the results; benchmarks that did not run this time keep what they had."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    found = {name: {**msgspec.to_builtins(each), "run": about} for name, each in results.items()}
    file.write_text(json.dumps({**kept, **found}, indent=1, sort_keys=True) + "\n")
