"""Commands in the documents are run by something, or are said not to be."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import run_file
from local.deployment.upload import uploaded_files
from local.services.processes import ServiceError, free_port
from tests.docs.pages import ROOT, Block, blocks, documents

SHELLS = ("bash", "sh", "shell", "console")

FOLLOWED = {
    "docs/five-minutes.md": "tests/docs/test_five_minutes.py",
    "docs/runbook.md": "tests/operator/test_runbook.py",
}
"""Pages all of whose commands a test reads from the page and runs."""

RUN_BY_CI = {"make demo", "make test"}
PLAYED = {"make start", "make send", "make import", "curl"}
"""The README's, run below."""

STARTS_WITHIN = 60.0


def _shell() -> list[Block]:
    return [block for page in documents() for block in blocks(page, *SHELLS)]


def _is_said_not_to_run(block: Block) -> bool:
    """By its fence, or in so many words since the heading before it."""
    before = "\n".join(block.page.read_text("utf-8").splitlines()[: block.line - 1])
    for fenced in blocks(block.page):
        before = before.replace(fenced.text, "")  # where a comment looks like a heading
    return "azure" in block.words or "not run in ci" in before.rpartition("\n#")[2].lower()


def _commands(block: Block) -> list[str]:
    """What each line runs, without its arguments; continued lines are one."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [" ".join(line[:2]) if line[0] == "make" else line[0] for line in words]


@pytest.mark.parametrize("block", _shell(), ids=str)
def test_every_command_is_run_by_a_test_or_by_ci_or_is_said_not_to_be(block: Block) -> None:
    page = block.page.relative_to(ROOT).as_posix()
    if page in FOLLOWED:
        assert Path(page).name in (ROOT / FOLLOWED[page]).read_text("utf-8")
    elif not _is_said_not_to_run(block):
        assert set(_commands(block)) <= RUN_BY_CI | PLAYED


@pytest.mark.parametrize("command", sorted(RUN_BY_CI))
def test_ci_runs_what_it_is_said_to_run(command: str) -> None:
    assert f"\n{command}" in (ROOT / ".ci" / "run").read_text("utf-8")


class Terminal:
    """Commands of the README on a port, a run file and an app of their own."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._run_file = folder / "run.json"
        self._app = folder / "app"
        for path in (*uploaded_files(ROOT), "local.settings.sample.json"):
            (self._app / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, self._app / path)

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - the page's own words
            ["bash", "-c", f"exec {command}"],  # noqa: S607
            cwd=ROOT,
            env=self._environment(f"--app {self._app} --run-file {self._run_file}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def is_up(self) -> bool:
        with contextlib.suppress(ServiceError):
            run_file.read(self._run_file)
            return True
        return False

    def run(self, command: str) -> str:
        done = subprocess.run(  # noqa: S603 - the page's own words
            ["bash", "-euc", command.replace("localhost:7071", f"localhost:{self._port}")],  # noqa: S607
            cwd=ROOT,
            env=self._environment(f"--run-file {self._run_file}"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self, arguments: str) -> dict[str, str]:
        installed = "-o .venv/.installed -o local/node_modules/.installed"
        return {
            **os.environ,
            "PORT": str(self._port),
            "ARGS": arguments,
            "MAKEFLAGS": installed,  # what runs this is installed; nothing is to be installed again
        }


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """With the app started as the README says, and ended by Ctrl-C."""
    [start] = [
        b.text for b in blocks(ROOT / "README.md", *SHELLS) if b.text.startswith("make start  ")
    ]
    terminal = Terminal(tmp_path)
    process = terminal.start(start.partition("#")[0])
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while process.poll() is None and not terminal.is_up() and time.monotonic() < deadline:
            time.sleep(0.1)
        if not terminal.is_up():
            process.kill()
            pytest.fail(f"did not start: {process.communicate()[0]}")
        yield terminal
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)


@pytest.mark.integration
def test_what_the_readme_plays_ends_with_the_order(terminal: Terminal) -> None:
    [block] = [b for b in blocks(ROOT / "README.md", *SHELLS) if "make send" in b.text]
    *sent, asked = (line for line in block.text.replace("\\\n", " ").splitlines() if line)

    told = [terminal.run(command) for command in sent]

    assert "202 Accepted" in told[-1]
    deadline = time.monotonic() + STARTS_WITHIN
    while (answer := terminal.run(asked)) and "not-found" in answer:
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)
    order = json.loads((ROOT / "samples" / "order.json").read_text("utf-8"))
    assert json.loads(answer)["order_id"] == order["order_id"]
