"""The benchmarks run, and keep their figures in their form. What they find is no test's business."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results.json"


@pytest.mark.slow
def test_each_benchmark_runs_and_keeps_its_figures_with_the_machine_s(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    subprocess.run(  # noqa: S603 - this repository's own program
        [sys.executable, "-m", "benchmarks", "--quick", "--json", "--results", str(file)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=240,
    )
    check(json.loads(file.read_text()))


def test_the_figures_that_are_kept_are_of_a_whole_run() -> None:
    kept = json.loads(RESULTS.read_text())
    check(kept)
    assert not any(each["run"]["quick"] for each in kept.values())


def check(results: dict[str, dict[str, object]]) -> None:
    assert set(results) == {"in-process", "cold-start"}
    for found in results.values():
        assert found.keys() == {"title", "figures", "ratios", "goals", "notes", "run"}
        figures = found["figures"]
        assert isinstance(figures, dict)
        for figure in figures.values():
            assert 0 < figure["least"] <= figure["median"] <= figure["most"]
        run = found["run"]
        assert isinstance(run, dict)
        assert {"date", "machine", "cores", "load_before", "python", "versions"} <= run.keys()
