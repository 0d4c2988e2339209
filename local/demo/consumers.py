"""The consumers: the app in several host processes, and what their logs say of each delivery."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from local.host.process import ROOT, HostProcess

SETTINGS = ROOT / "local.settings.sample.json"

_SERVICE_BUS = "process_order"
_STORAGE_QUEUE = "process_order_from_storage_queue"
_OUTCOME = re.compile(r"^\[(\S+)Z\] process_order '([^']+)': (\w+)(?: (\w+))?$", re.MULTILINE)
_BEGUN = re.compile(r"\] Executing 'Functions\.(\w+)' ")
_FAILED = re.compile(r"\] Executed 'Functions\.(\w+)' \(Failed, ")


@dataclass(frozen=True, slots=True)
class Handling:
    """One line of a consumer's log: what became of one delivery of an order, where and when."""

    consumer: str
    at: datetime
    key: str
    outcome: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class Consumer:
    """One host process with the app."""

    name: str
    host: HostProcess

    def has_processed(self, key: str) -> bool:
        """Whether the effect of this order was made here."""
        return any(each.key == key and each.outcome == "processed" for each in self.handlings())

    def handlings(self) -> Iterator[Handling]:
        """What its log says, deliveries of a later killed process included."""
        for at, key, outcome, cause in _OUTCOME.findall(self.host.output):
            yield Handling(self.name, datetime.fromisoformat(at), key, outcome, cause or None)

    def begun(self) -> Counter[str]:
        """How many invocations of each function it has begun."""
        return Counter(_BEGUN.findall(self.host.output))

    def failed(self) -> Counter[str]:
        """How many invocations of each function have failed."""
        return Counter(_FAILED.findall(self.host.output))


class Consumers:
    """All consumers of one run, those that were killed included.

    Start them from the main thread: a child ends with the thread that started it.
    """

    def __init__(self, app: Path, environment: Mapping[str, str], folder: Path) -> None:
        self.all: list[Consumer] = []
        self.killed: list[Consumer] = []
        self._app = app
        self._environment = environment
        self._folder = folder

    @property
    def running(self) -> list[Consumer]:
        return [each for each in self.all if each not in self.killed]

    def start(self, count: int) -> None:
        """So many more; they consume when this returns. Raises ServiceError when one does not."""
        asyncio.run(self._start(count))

    async def _start(self, count: int) -> None:
        first = len(self.all) + 1
        try:
            async with asyncio.TaskGroup() as starting:
                for number in range(first, first + count):
                    starting.create_task(self._start_one(f"consumer {number}"))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _start_one(self, name: str) -> None:
        log = self._folder / f"{name.replace(' ', '-')}.log"
        # The sample: complete in any clone, and no one's own changes get in the way.
        arguments = ["--settings", str(SETTINGS)]
        host = HostProcess(self._app, environment=self._environment, arguments=arguments, log=log)
        await host.__aenter__()
        self.all.append(Consumer(name, host))

    def kill(self, consumer: Consumer) -> None:
        """End one as a crash does."""
        consumer.host.kill()
        self.killed.append(consumer)

    def stop(self) -> None:
        """Let all end in good order: they send the telemetry they still have."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda consumer: consumer.host.stop(), self.running))


@dataclass(frozen=True, slots=True)
class Logs:
    """What all consumers have logged, taken together.

    from_service_bus, from_storage_queue: deliveries that were handed to the app.
    failed: those of both whose handler raised, so that the host gave them back.
    of_killed: handlings in consumers that were killed.
    """

    handlings: tuple[Handling, ...]
    from_service_bus: int
    from_storage_queue: int
    failed: int
    of_killed: int

    @classmethod
    def of(cls, consumers: Consumers) -> "Logs":
        """Read the logs of all consumers, best when they have ended."""
        begun: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for consumer in consumers.all:
            begun += consumer.begun()
            failed += consumer.failed()
        return cls(
            handlings=tuple(h for consumer in consumers.all for h in consumer.handlings()),
            from_service_bus=begun[_SERVICE_BUS],
            from_storage_queue=begun[_STORAGE_QUEUE],
            failed=failed[_SERVICE_BUS] + failed[_STORAGE_QUEUE],
            of_killed=sum(1 for consumer in consumers.killed for _ in consumer.handlings()),
        )

    def count(self, outcome: str, cause: str | None = None) -> int:
        """Deliveries with this outcome, and this cause where one is named."""
        return sum(
            1 for each in self.handlings if each.outcome == outcome and cause in (None, each.cause)
        )

    def deliveries_of(self, key: str) -> list[Handling]:
        """What became of one order, in order of time."""
        return sorted((h for h in self.handlings if h.key == key), key=lambda h: h.at)
