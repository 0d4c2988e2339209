"""A child process comes up or says why not, and is gone exactly when it should be."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local.services.processes import (
    LOOPBACK,
    ChildProcess,
    ServiceError,
    free_port,
    port_is_free,
)

ROOT = Path(__file__).parents[3]


def python(code: str, *, grace: float = 5.0, log: Path | None = None) -> ChildProcess:
    return ChildProcess("child", [sys.executable, "-c", code], grace=grace, log=log)


def alive(pid: int) -> bool:
    """Whether there is such a process, one that has ended but was not collected aside."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool], within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_given_a_child_that_is_up_when_the_context_ends_then_it_is_gone() -> None:
    with python("import time; print('up', flush=True); time.sleep(60)") as child:
        child.wait_for_output("up", within=5)
        pid = child.pid
        assert child.running
        assert alive(pid)
    assert not child.running
    assert not alive(pid)


def test_given_a_child_that_fails_then_the_error_names_it_and_shows_the_end_of_its_log() -> None:
    code = "for n in range(100): print('line', n)\nraise SystemExit('no such disk')"
    with python(code) as child, pytest.raises(ServiceError) as failure:
        child.wait_for_output("ready", within=5)
    message = str(failure.value)
    assert message.startswith("child: ended with exit code 1 before it printed 'ready'")
    assert message.endswith("no such disk")
    assert "line 99" in message
    assert "line 50" not in message


def test_given_a_child_that_never_gets_ready_when_time_is_up_then_the_error_says_so() -> None:
    code = "import time; print('still loading', flush=True); time.sleep(60)"
    with python(code) as child:
        child.wait_for_output("loading", within=5)
        with pytest.raises(ServiceError, match=r"child: not within 0\.1 s: it answered") as failure:
            child.wait_until(lambda: None, within=0.1, what="it answered")
    assert "still loading" in str(failure.value)


def test_given_a_child_that_ends_after_it_printed_what_was_awaited_then_it_was_seen() -> None:
    with python("print('port 1234')") as child:
        eventually(lambda: not child.running)
        assert child.wait_for_output(r"port (\d+)", within=5)[1] == "1234"


def test_given_no_such_program_then_the_error_names_it() -> None:
    with pytest.raises(ServiceError, match="child: there is no program 'no-such-program' on PATH"):
        ChildProcess("child", ["no-such-program"]).start()


def test_given_a_child_that_ignores_the_request_to_end_then_it_is_killed_after_its_grace() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(60)"
    )
    child = python(code, grace=0.2).start()
    child.wait_for_output("deaf", within=5)
    started = time.monotonic()
    assert child.stop() == -signal.SIGKILL
    assert time.monotonic() - started < 3


def test_given_a_child_that_has_children_when_it_is_stopped_then_they_are_gone_too() -> None:
    code = (
        "import subprocess, sys, time;"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print('grandchild', c.pid, flush=True); time.sleep(60)"
    )
    with python(code) as child:
        grandchild = int(child.wait_for_output(r"grandchild (\d+)\n", within=5)[1])
        assert alive(grandchild)
    assert eventually(lambda: not alive(grandchild))


def test_given_a_child_that_ended_by_itself_when_it_is_stopped_then_its_own_code_is_told() -> None:
    child = python("raise SystemExit(7)").start()
    assert eventually(lambda: child.exit_code == 7)
    assert child.stop() == 7
    assert child.stop() is None


def test_given_two_children_when_one_is_killed_then_the_other_runs_on() -> None:
    code = "import time; print('up', flush=True); time.sleep(60)"
    with python(code) as one, python(code) as other:
        one.wait_for_output("up", within=5)
        other.wait_for_output("up", within=5)
        one.kill()
        assert not one.running
        assert other.running


def test_given_a_child_when_the_terminal_interrupts_the_parents_group_then_it_runs_on() -> None:
    with python("import time; time.sleep(60)") as child:
        assert os.getpgid(child.pid) == child.pid != os.getpgrp()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_given_a_parent_that_is_killed_outright_then_its_child_ends() -> None:
    code = (
        "import time\n"
        "from local.services.processes import ChildProcess\n"
        "child = ChildProcess('sleeper', ['sleep', '60']).start()\n"
        "print(child.pid, child._log, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(  # noqa: S603  the program above
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with parent:
        assert parent.stdout
        pid, log = parent.stdout.readline().split()
        try:
            assert eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
            parent.kill()
            assert eventually(lambda: not alive(int(pid)))
        finally:
            parent.kill()
            Path(log).unlink()
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def test_given_a_log_file_then_it_is_kept_and_otherwise_nothing_is(tmp_path: Path) -> None:
    kept = tmp_path / "logs" / "child.log"
    with python("print('hello')", log=kept) as child:
        child.wait_for_output("hello", within=5)
    assert kept.read_text() == "hello\n"
    with python("print('hello')") as child:
        child.wait_for_output("hello", within=5)
        temporary = child._log
        assert temporary
        assert temporary.exists()
    assert not temporary.exists()


def test_given_a_port_with_a_listener_then_it_is_not_free_and_a_free_one_is() -> None:
    import socket

    port = free_port()
    assert port_is_free(port)
    with socket.create_server((LOOPBACK, port)):
        assert not port_is_free(port)
