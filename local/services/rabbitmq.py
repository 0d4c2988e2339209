"""RabbitMQ on this machine, where Debian's package `rabbitmq-server` is installed.

A node of its own, with its data in a temporary folder: the service that the package brings is not
touched, and nothing is left behind.
"""

import os
import shutil
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from local.services.processes import LOOPBACK, ChildProcess, ServiceError, free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 90.0


def is_installed() -> bool:
    """Whether it can be started here: `apt-get install rabbitmq-server` brings it."""
    return PROGRAM.exists() and shutil.which("epmd") is not None


class RabbitMQ:
    """A broker, up and answering while the context lasts. Raises ServiceError when it does not come up."""

    def __init__(self) -> None:
        self.port = 0
        self._folder: Path | None = None
        self._children: list[ChildProcess] = []

    def __enter__(self) -> Self:
        if not is_installed():
            raise ServiceError("rabbitmq: not installed; `apt-get install rabbitmq-server` does it")
        self._folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
        try:
            self._start(self._folder)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def connection_string(self) -> str:
        """For any AMQP 0-9-1 client, and for `RabbitMQConnection`."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"

    def _start(self, folder: Path) -> None:
        self.port, distribution, names = free_port(), free_port(), free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),  # where the node's cookie is
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": f"n{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        # one's own, and in the foreground: else the node starts one that outlives it
        epmd = ChildProcess("epmd", ["epmd"], environment=environment)
        self._children.append(epmd.start())
        broker = ChildProcess("rabbitmq", [str(PROGRAM)], environment=environment, folder=folder)
        self._children.append(broker.start())
        broker.wait_until(
            self._answers, within=START_SECONDS, what=f"it answered on port {self.port}"
        )

    def _answers(self) -> bool:
        """Whether it answers a client's greeting: the port is open before that."""
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return len(connection.recv(1)) == 1

    def _stop(self) -> None:
        while self._children:
            self._children.pop().stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
