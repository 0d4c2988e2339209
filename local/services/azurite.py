"""Azure Storage on this machine: Azurite, the emulator that Microsoft publishes.

    with Azurite() as azurite:
        TableServiceClient.from_connection_string(azurite.connection_string)

Left to itself it keeps everything in memory and lets the system choose its ports, so that any
number of them can run side by side.
"""

import http.client
import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from local.services.node import installed
from local.services.processes import LOOPBACK, ChildProcess, PortInUse, ServiceError, port_is_free

# Published by Microsoft, the same in every Azurite: an address, not a secret.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
START_SECONDS = 30.0


@dataclass(frozen=True)
class AzuritePorts:
    """Where the three services listen; 0 lets the system choose."""

    blob: int = 0
    queue: int = 0
    table: int = 0

    def taken(self) -> list[int]:
        """Those that another program listens on."""
        return [port for port in (self.blob, self.queue, self.table) if not port_is_free(port)]


# Those that `UseDevelopmentStorage=true` stands for.
STANDARD_PORTS = AzuritePorts(blob=10000, queue=10001, table=10002)


class Azurite:
    """Blob, queue and table storage, up and answering while the context lasts.

    ports: fixed ports, as `STANDARD_PORTS`; PortInUse names the one that is taken.
    location: a folder that keeps the data; in memory, and gone at the end, when left out.
    log: a file for its output; a temporary one when left out.

    Stopped and started again it listens on the ports it had, as a store that was down does;
    only what is kept in `location` is still there.
    """

    def __init__(
        self,
        *,
        ports: AzuritePorts = AzuritePorts(),
        location: Path | None = None,
        log: Path | None = None,
    ) -> None:
        self._location = location
        self._log = log
        self._process: ChildProcess | None = None
        self.ports = ports

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
    def connection_string(self) -> str:
        """For any Azure Storage client, and for `AzureWebJobsStorage`."""
        endpoints = {
            "BlobEndpoint": self.ports.blob,
            "QueueEndpoint": self.ports.queue,
            "TableEndpoint": self.ports.table,
        }
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            + "".join(f"{n}=http://{LOOPBACK}:{p}/{ACCOUNT};" for n, p in endpoints.items())
        )

    @property
    def process(self) -> ChildProcess:
        """The program that serves it."""
        if self._process is None:
            raise ServiceError("azurite: not started")
        return self._process

    def start(self) -> Self:
        """Start it and wait until each of its three services has answered a request.

        Raises PortInUse, or ServiceError when it is not installed or does not come up.
        """
        if taken := self.ports.taken():
            raise PortInUse("azurite", taken[0])
        process = ChildProcess("azurite", self._command(), log=self._log).start()
        self._process = process
        try:
            self.ports = AzuritePorts(
                blob=_announced(process, "Blob"),
                queue=_announced(process, "Queue"),
                table=_announced(process, "Table"),
            )
            for service, port in vars(self.ports).items():
                process.wait_until(
                    lambda service=service, port=port: _answers(service, port),  # type: ignore[misc]
                    within=START_SECONDS,
                    what=f"its {service} service answered",
                )
        except ServiceError as error:
            self.stop()
            # Somebody was quicker than the look at the ports above.
            if complaint := re.search(r"EADDRINUSE\D+[\d.]+:(\d+)", str(error)):
                raise PortInUse("azurite", int(complaint[1])) from None
            raise
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it; what it kept in memory is gone."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _command(self) -> list[str]:
        keep = ["--location", str(self._location)] if self._location else ["--inMemoryPersistence"]
        return [
            "node",
            str(installed("azurite", "dist/src/azurite.js")),
            "--silent",
            "--disableTelemetry",
            # The SDKs speak newer versions of the protocol than Azurite has heard of.
            "--skipApiVersionCheck",
            *("--blobPort", str(self.ports.blob)),
            *("--queuePort", str(self.ports.queue)),
            *("--tablePort", str(self.ports.table)),
            *keep,
        ]


def _announced(process: ChildProcess, service: str) -> int:
    pattern = rf"{service} service is successfully listening at http://\S+:(\d+)"
    return int(process.wait_for_output(pattern, within=START_SECONDS)[1])


def _answers(service: str, port: int) -> bool:
    """Whether it answers a request; unsigned, so the answer is a refusal that bears its name."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", f"/{ACCOUNT}?comp=list")
        server = connection.getresponse().getheader("Server", "")
        return server.startswith(f"Azurite-{service.capitalize()}/")
    finally:
        connection.close()
