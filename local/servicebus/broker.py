"""The broker as tests, the host and the demo hold it: start, look, disturb, stop."""

import time
from types import TracebackType
from typing import Any, Self

from .clock import Clock
from .counts import Counts
from .entities import Entities
from .faults import Faults
from .frontend import FrontEnd
from .message import Snapshot
from .namespace import Namespace
from .server import Server

MAX_MESSAGE_BYTES = 1024 * 1024


class Broker:
    """A Service Bus namespace in memory, spoken to over AMQP 1.0 on a TCP port.

    It runs on a daemon thread of its own; every method here may be called from any thread, also
    before `start` and after `stop`, when the state stays to be looked at. `port` 0 takes a free
    one. Anyone who reaches the port is let in: keep `host` on the loopback.
    """

    def __init__(
        self,
        entities: Entities,
        host: str = "127.0.0.1",
        port: int = 0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.entities = entities
        self.host = host
        self.port = port
        self.clock = Clock(on_advance=lambda: self._server.wake())
        self._namespace = Namespace(entities, self.clock)
        self.faults = Faults(self._run, lambda name: self._namespace.queue(name).name)
        front_end = FrontEnd(
            self._namespace, self.clock, self.faults, self._drop, max_message_bytes
        )
        self._server = Server(front_end)

    @property
    def connection_string(self) -> str:
        """For any Service Bus client; the key is as good as any other."""
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Serve; OSError if the port is taken."""
        self.port = self._server.start(self.host, self.port)

    def stop(self) -> None:
        """Cut all connections and close the port. Twice does no harm."""
        self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---------------------------------------------------------------- looking

    def counts(self, entity: str) -> Counts:
        """What an entity has seen and holds; EntityNotFound. On a topic: what came in."""
        return self._server.run(lambda: self._namespace.find(entity).counts())

    def messages(self, entity: str) -> tuple[Snapshot, ...]:
        """What is in a queue now, `orders/$deadletterqueue` for instance; EntityNotFound."""
        return self._server.run(lambda: self._namespace.queue(entity).messages())

    # ---------------------------------------------------------------- disturbing

    def drop_connections(self) -> None:
        """Reset every connection, as a network failure would."""
        self._server.run(self._server.drop_all)

    def restart(self, downtime: float = 0.2) -> None:
        """Be gone for `downtime` seconds, then serve on the same port with all state kept."""

        def go_down() -> None:
            self._server.close_port()
            self._server.drop_all()

        self._server.run(go_down)
        time.sleep(downtime)
        self._server.run(self._server.open_port)

    def _run(self, function: Any) -> None:
        self._server.run(function)

    def _drop(self, connection: Any) -> None:
        self._server.drop(connection)
