"""What `make start` says about itself, for whoever wants to talk to it: `.run/local.json`.

The file is locked for as long as its writer runs, so that a file left behind by a killed
process is not mistaken for a running one.
"""

import fcntl
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from local.services.processes import ServiceError

DEFAULT = Path(__file__).parents[1] / ".run" / "local.json"


@dataclass(frozen=True)
class Running:
    """The parts of one running app.

    processes: process ids by name; `start` is the one to interrupt.
    service_bus, cosmos: connection strings, None when they do not run.
    payments, mails: the providers' addresses, None without Service Bus, which brings their work.
    """

    url: str
    storage: str
    storage_queues: list[str]
    telemetry: str
    service_bus: str | None = None
    service_bus_queues: list[str] = field(default_factory=list)
    cosmos: str | None = None
    payments: str | None = None
    mails: str | None = None
    processes: dict[str, int] = field(default_factory=dict)


class RunFile:
    """The right to run, held while the context lasts; the file is gone afterwards.

    Raises ServiceError on entering when another process holds it.
    """

    def __init__(self, path: Path = DEFAULT) -> None:
        self.path = path
        self._held: BinaryIO | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        held = self.path.open("ab")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise ServiceError(f"the app is running already, see {self.path}") from None
        held.truncate(0)
        self._held = held
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._held is not None:
            self.path.unlink(missing_ok=True)
            self._held.close()
            self._held = None

    def write(self, running: Running) -> None:
        """Tell what runs, once it does."""
        if self._held is None:
            raise ServiceError(f"{self.path}: not held")
        self._held.truncate(0)
        self._held.write(json.dumps(asdict(running), indent=2).encode() + b"\n")
        self._held.flush()


def read(path: Path = DEFAULT) -> Running:
    """What runs now.

    Raises ServiceError when nothing does, or it is still starting.
    """
    try:
        with path.open("rb") as file:
            if _is_held(file):
                content = file.read()
            else:
                raise FileNotFoundError
    except FileNotFoundError:
        raise ServiceError("the app does not run here: `make start` in another terminal") from None
    if not content:
        raise ServiceError("the app is still starting: try again in a moment")
    return Running(**json.loads(content))


def _is_held(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
