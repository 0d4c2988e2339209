"""Cosmos DB for NoSQL on this machine: `@vercel/cosmosdb-server`, over HTTPS, in memory.

    with CosmosServer() as cosmos:
        client = CosmosClient(cosmos.endpoint, cosmos.key, **CLIENT_OPTIONS)

It is faithful where this app leans on it: 409 on a create, 412 on a stale ETag, point reads,
patch, conditional delete, and, mended by our launcher, batches that are atomic. It is wrong in one
place that matters: `ttl` is ignored.
"""

import http.client
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local.services.node import installed
from local.services.processes import LOOPBACK, ChildProcess, PortInUse, ServiceError, port_is_free

# Published by Microsoft, the same in every Cosmos emulator: an address, not a secret.
EMULATOR_KEY = (
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)
LAUNCHER = Path(__file__).with_name("cosmos_server.cjs")
START_SECONDS = 30.0

# What `azure.cosmos` clients need here: the certificate is self-signed, and the server knows
# itself as one region only. The synchronous client warns (urllib3's InsecureRequestWarning)
# at each request because of the first; the asynchronous one does not.
CLIENT_OPTIONS: dict[str, Any] = {"connection_verify": False, "enable_endpoint_discovery": False}


class CosmosServer:
    """A Cosmos account without databases, up and answering while the context lasts.

    port: a fixed port; the system chooses when it is 0. PortInUse when it is taken.
    log: a file for its output; a temporary one when left out.

    Stopped and started again it listens on the port it had, with nothing kept.
    """

    def __init__(self, *, port: int = 0, log: Path | None = None) -> None:
        self._log = log
        self._process: ChildProcess | None = None
        self.port = port
        self.key = EMULATOR_KEY

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
    def endpoint(self) -> str:
        """The account's address, for the client."""
        return f"https://{LOOPBACK}:{self.port}/"

    @property
    def connection_string(self) -> str:
        """Address and key in one, for `COSMOS_CONNECTION`."""
        return f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    @property
    def process(self) -> ChildProcess:
        """The program that serves it."""
        if self._process is None:
            raise ServiceError("cosmos: not started")
        return self._process

    def start(self) -> Self:
        """Start it and wait until it has answered a request.

        Raises PortInUse, or ServiceError when it is not installed or does not come up.
        """
        if not port_is_free(self.port):
            raise PortInUse("cosmos", self.port)
        library = installed("@vercel/cosmosdb-server", "lib/index.js")
        command = ["node", str(LAUNCHER), str(library), str(self.port)]
        process = ChildProcess("cosmos", command, log=self._log).start()
        self._process = process
        try:
            listening = process.wait_for_output(r"listening at \S+:(\d+)/", within=START_SECONDS)
            self.port = int(listening[1])
            process.wait_until(self._answers, within=START_SECONDS, what="it answered")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it, and everything it kept."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _answers(self) -> bool:
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=2, context=unverified)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
