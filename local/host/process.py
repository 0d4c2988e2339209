"""A host in a process of its own, for tests and the demo.

    async with HostProcess(app, environment={"ServiceBusConnection": ...}) as host:
        await client.post(f"{host.base_url}/api/orders", ...)

The same with a plain `with`. Entered, all triggers run; left, the host was asked to end, has let
running invocations finish, and is gone.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from local.services.processes import ChildProcess, ServiceError

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STARTED = r"Host started \(pid (\d+)\)"
LISTENING = r"Now listening on: (\S+)"
POLL_SECONDS = 0.05


class HostProcess:
    """`python -m local.host` with an app.

    environment: settings on top of this process's environment; None as a value removes one.
    port: 0 for a free one, None for no HTTP.
    arguments: further arguments, such as `--quiet`.
    log: a file that gets the output and is kept; a temporary one when left out.
    grace: seconds that running invocations get when the host is asked to end.

    Hazard: start it from the main thread, or one that lives as long: see `ChildProcess`.
    """

    def __init__(
        self,
        app: Path,
        *,
        environment: Mapping[str, str | None] | None = None,
        port: int | None = 0,
        arguments: Sequence[str] = (),
        log: Path | None = None,
        grace: float = 10.0,
    ) -> None:
        http = ["--no-http"] if port is None else ["--port", str(port)]
        settings = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._log_is_temporary = log is None
        self._log = log or Path(tempfile.mkstemp(prefix="host-", suffix=".log")[1])
        self._last_output: str | None = None
        self._process = ChildProcess(
            "host",
            [sys.executable, "-m", "local.host", "--app", str(app.resolve()), *http,
             "--grace", str(grace), *arguments],
            environment={name: value for name, value in settings.items() if value is not None},
            folder=ROOT,
            log=self._log,
            grace=grace + 5.0,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_for_output(STARTED, within=START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._process.start()
        deadline = time.monotonic() + START_SECONDS
        try:
            while not re.search(STARTED, self.output):
                if self._process.exit_code is not None or time.monotonic() > deadline:
                    raise self._process.failure("did not start")
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def base_url(self) -> str:
        """Where HTTP is served. Raises ServiceError when it is not."""
        found = re.search(LISTENING, self.output)
        if found is None:
            raise ServiceError("host: it serves no HTTP")
        return found[1]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with by itself; None while it runs."""
        return self._process.exit_code

    @property
    def output(self) -> str:
        """Everything it has printed so far, and after its end everything it had printed."""
        return self._process.output() if self._last_output is None else self._last_output

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal and do not wait."""
        os.kill(self._process.pid, number)

    def stop(self) -> int | None:
        """Ask it to end and wait; the exit code, None when it was ended before."""
        if self._last_output is not None:
            return None
        code = self._process.stop()
        self._ended()
        return code

    def kill(self) -> None:
        """End it as a crash does: nothing is settled, nothing is flushed."""
        self._process.kill()
        self._ended()

    def _ended(self) -> None:
        self._last_output = self._log.read_text("utf-8", "replace")
        if self._log_is_temporary:
            self._log.unlink()
