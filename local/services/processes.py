"""A service that is a program of its own: started, known to be up, stopped exactly.

    with ChildProcess("azurite", ["node", "azurite.js"]) as azurite:
        found = azurite.wait_for_output(r"listening at \\S+:(\\d+)", within=20)

Every child leads its own process group, so that Ctrl-C at the terminal reaches only the
parent, which then stops what it started in an order of its own. Signals go to the handle of
the child and to its group, never to a process found by name.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

LEASH = Path(__file__).with_name("leash.py")
LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.02
TAIL_LINES = 20


class ServiceError(RuntimeError):
    """A local service did not come up, ended by itself, or cannot have what it was given.

    The message names the service and is fit to be shown to a person as it is.
    """


class PortInUse(ServiceError):
    """Another program listens where a service was told to listen."""

    def __init__(self, service: str, port: int) -> None:
        super().__init__(f"{service}: port {port} is in use by another program")
        self.port = port


class ChildProcess:
    """One child process, from its start on entering to its end on leaving the context.

    name: what messages call it.
    command: program and arguments; the program is looked up on PATH.
    environment: the whole environment of the child; the parent's when left out.
    folder: its working directory.
    log: a file that gets its output and is kept. When left out, the output goes to a
        temporary file that is deleted once the child was stopped.
    to_terminal: let it write to this process's own output instead; then there is no log.
    grace: seconds between the request to end and the kill.

    Hazard: on Linux the child is killed when the *thread* that started it ends. Start it from
    the main thread, or from one that lives as long as the child is needed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        log: Path | None = None,
        to_terminal: bool = False,
        grace: float = 5.0,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._environment = environment
        self._folder = folder
        self._log = log
        self._log_is_temporary = log is None
        self._to_terminal = to_terminal
        self._grace = grace
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self._handle().pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """What it ended with (negative: the signal that ended it); None while it runs."""
        return _exit_code(self._handle().pid)

    def start(self) -> Self:
        """Start the program; whether it is of any use yet, `wait_until` tells.

        Raises ServiceError when there is no such program.
        """
        if self._child is not None:
            raise ServiceError(f"{self.name}: already started")
        program = shutil.which(self._command[0])
        if program is None:
            raise ServiceError(f"{self.name}: there is no program {self._command[0]!r} on PATH")
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
        with contextlib.ExitStack() as opened:
            output = None if self._to_terminal else opened.enter_context(self._open_log())
            self._child = subprocess.Popen(  # noqa: S603  commands are this repository's own
                [*leash, program, *self._command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                env=None if self._environment is None else dict(self._environment),
                cwd=self._folder,
                process_group=0,
            )
        return self

    def wait_until[T](self, condition: Callable[[], T | None], *, within: float, what: str) -> T:
        """Wait until the condition holds, and give what it returned.

        condition: returns something true once it holds; an OSError (a refused connection)
            counts as "not yet".
        within: seconds from now.
        what: what is being waited for, for the message.

        Raises ServiceError with the end of the log when the child ends before, or time is up.
        """
        deadline = time.monotonic() + within
        while True:
            exit_code = self.exit_code
            with contextlib.suppress(OSError):
                if result := condition():
                    return result
            if exit_code is not None:
                raise self.failure(f"ended with exit code {exit_code} before {what}")
            if time.monotonic() > deadline:
                raise self.failure(f"not within {within:g} s: {what}")
            time.sleep(POLL_SECONDS)

    def wait_for_output(self, pattern: str, *, within: float) -> re.Match[str]:
        """Wait until the output matches the regular expression, and give the match.

        Raises ServiceError as `wait_until` does.
        """
        return self.wait_until(
            lambda: re.search(pattern, self.output()),
            within=within,
            what=f"it printed {pattern!r}",
        )

    def output(self) -> str:
        """Everything it has written so far; empty when that went to the terminal."""
        if self._to_terminal or self._log is None or not self._log.exists():
            return ""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def failure(self, reason: str) -> ServiceError:
        """An error that names the child, the reason, and the end of its log."""
        tail = "\n".join(f"    {line}" for line in self.output().splitlines()[-TAIL_LINES:])
        above = "; what it said stands above" if self._to_terminal else ""
        return ServiceError(f"{self.name}: {reason}{above}" + (f"\n{tail}" if tail else ""))

    def stop(self) -> int | None:
        """End the child and its process group: ask, wait for `grace` seconds, kill.

        Returns the exit code (negative: the signal that ended it), or None when it never ran.
        Calling it again changes nothing.
        """
        child, self._child = self._child, None
        if child is None:
            return None
        # Until it is reaped, neither its pid nor its group id can belong to anybody else.
        if _exit_code(child.pid) is None:
            os.kill(child.pid, signal.SIGTERM)
            deadline = time.monotonic() + self._grace
            while _exit_code(child.pid) is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        exit_code = child.wait()
        if self._log_is_temporary and self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None
        return exit_code

    def kill(self) -> None:
        """End it as a crash does: at once, with nothing flushed or handed back."""
        os.kill(self._handle().pid, signal.SIGKILL)
        self.stop()

    def _open_log(self) -> BinaryIO:
        if self._log is None:
            opened, path = tempfile.mkstemp(prefix=f"{self.name}-", suffix=".log")
            self._log = Path(path)
            return os.fdopen(opened, "wb")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        return self._log.open("wb")

    def _handle(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ServiceError(f"{self.name}: not started")
        return self._child


def _exit_code(pid: int) -> int | None:
    """How the child ended, without reaping it: its ids stay its own until `stop`."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def free_port() -> int:
    """A loopback TCP port that nobody listens on at this moment.

    Another program may take it before it is used. Prefer to let the service choose (port 0)
    and ask it; where it must be told, start it again on another port when it complains.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Whether a service could listen on this loopback TCP port now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
