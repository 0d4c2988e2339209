"""The public API infers the handler's result, as mypy --strict sees it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_results_are_inferred_by_mypy_strict(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own file, by our own interpreter
        [
            *(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"),
            *("--cache-dir", str(tmp_path), "--follow-imports", "silent"),
            str(ROOT / "tests" / "typing" / "api.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
