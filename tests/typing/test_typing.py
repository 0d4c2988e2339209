"""The public API infers the handler's result, and a protected function keeps its parameters.

Two type checkers read the files beside this one, as strict as they can be.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "typing"
CHECKED = sorted(str(path) for path in HERE.glob("*.py") if not path.name.startswith("test_"))
PYRIGHT = ROOT / "local" / "node_modules" / ".bin" / "pyright"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own files, by tools of our own
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_mypy_strict_infers_results_and_keeps_parameters(tmp_path: Path) -> None:
    done = run(
        *(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"),
        *("--cache-dir", str(tmp_path), "--follow-imports", "silent", *CHECKED),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_strict_infers_results_and_keeps_parameters() -> None:
    done = run(str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson")
    told = json.loads(done.stdout)
    assert told["generalDiagnostics"] == []
    assert told["summary"]["filesAnalyzed"] >= len(CHECKED)


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_wrong_expectation_is_an_error_to_each_checker(checker: str, tmp_path: Path) -> None:
    """The two above would pass if the checkers looked at nothing."""
    wrong = tmp_path / "wrong.py"
    text = (HERE / "decorators.py").read_text()
    wrong.write_text(text.replace("await credit(order), Decimal)", "await credit(order), int)"))
    if checker == "mypy":
        done = run(
            *(sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")),
            *("--follow-imports", "silent", str(wrong)),
        )
    else:
        done = run(str(PYRIGHT), "--pythonpath", sys.executable, str(wrong))
    assert done.returncode != 0
    assert "Decimal" in done.stdout
