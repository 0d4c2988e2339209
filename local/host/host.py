"""The host: a trigger for each function of the worker, started and stopped together."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .bindings import BindingError, Function, connection, resolve
from .hostjson import HostSettings
from .http import HttpTrigger, PortInUseError
from .invocations import Invocations
from .rabbitmq import RabbitMQTrigger
from .routes import RouteError, route
from .service_bus import ServiceBusTrigger
from .settlement import Settlement
from .storage_queue import HIDDEN, StorageQueueTrigger
from .subscription import subscription
from .timer import TimerTrigger
from .worker import Worker, settlement_address

log = logging.getLogger("local.host")


class Trigger(Protocol):
    """What feeds one function. `stop` waits at most `grace` seconds for what still runs."""

    async def start(self) -> None: ...
    async def stop(self, grace: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: host.json, the HTTP port (None: no HTTP), seconds to finish in.

    hide: seconds a Storage queue message stays invisible at a time.
    """

    settings: HostSettings
    port: int | None
    grace: float
    hide: float = HIDDEN


class Host:
    """Pumps triggers into the worker. Runs on a loop of its own, in a thread of its own."""

    def __init__(
        self, worker: Worker, worker_loop: asyncio.AbstractEventLoop, options: Options
    ) -> None:
        self._options = options
        self._settings = options.settings
        self._functions = [f for f in worker.functions.values() if not _disabled(f)]
        self.invocations = Invocations(worker, worker_loop)
        self._settlement = Settlement()
        self._triggers: list[Trigger] = []
        self._timers: dict[str, TimerTrigger] = {}
        self._http: HttpTrigger | None = None
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> int:
        """Serve until `request_stop`; answers the exit code of the process."""
        self._loop = asyncio.get_running_loop()
        settlement_address(await self._settlement.start())
        try:
            return await self._serve()
        finally:
            await self._settlement.stop()

    def request_stop(self) -> None:
        """Ask for an orderly stop, from any thread."""
        if self._loop is None:
            self._stop.set()
        else:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> int:
        failures = self._build()
        port = None
        if self._options.port is not None:
            try:
                port = await self._listen(self._options.port, failures)
            except PortInUseError as error:
                _say(str(error))
                return 1
        self._list(port)
        for line in failures:
            _say(line)
        await asyncio.gather(*(trigger.start() for trigger in self._triggers))
        if self._http is not None:
            self._http.state = "Running"
        _say(f"Host started (pid {os.getpid()})")
        await self._stop.wait()
        _say("Stopping")
        await self._end()
        return 0

    def _build(self) -> list[str]:
        """A trigger for each function that can have one; what the others lack."""
        failures: list[str] = []
        for function in self._functions:
            failures.extend(
                f"Function '{function.name}': output binding '{output.get('name')}' "
                f"({output['type']}) is not sent locally"
                for output in function.outputs
            )
            try:
                trigger = self._trigger(function)
            except BindingError as error:
                failures.append(
                    f"The listener for function '{function.name}' cannot start: {error}"
                )
                continue
            if trigger is not None:
                self._triggers.append(trigger)
            elif function.trigger_type != "httpTrigger":
                kind = function.trigger_type
                sdk_type = " with a parameter of an SDK type" if _takes_sdk_type(function) else ""
                failures.append(
                    f"Function '{function.name}': {kind}{sdk_type} is not pumped locally"
                )
        return failures

    def _trigger(self, function: Function) -> Trigger | None:
        environment = os.environ
        if _takes_sdk_type(function):
            return None
        match function.trigger_type:
            case "serviceBusTrigger":
                return ServiceBusTrigger(
                    subscription(function, self._settings.service_bus, environment),
                    connection(function.trigger, environment),
                    self._settings.service_bus,
                    self.invocations,
                    self._settlement,
                )
            case "queueTrigger":
                return StorageQueueTrigger(
                    function.name,
                    resolve(str(function.trigger["queueName"]), environment),
                    connection(function.trigger, environment),
                    self._settings.queues,
                    self.invocations,
                    hide=self._options.hide,
                )
            case "rabbitMQTrigger":
                setting = str(function.trigger["connectionStringSetting"])
                if not environment.get(setting):
                    raise BindingError(f"connection string '{setting}' is missing or empty")
                return RabbitMQTrigger(
                    function.name,
                    resolve(str(function.trigger["queueName"]), environment),
                    environment[setting],
                    self.invocations,
                    binary=str(function.trigger.get("dataType", "")).lower() == "binary",
                )
            case "timerTrigger":
                timer = TimerTrigger(function, self.invocations, environment)
                self._timers[function.name] = timer
                return timer
        return None

    async def _listen(self, port: int, failures: list[str]) -> int:
        routes = []
        for function in self._functions:
            if function.trigger_type == "httpTrigger":
                try:
                    routes.append(route(function, self._settings.route_prefix))
                except RouteError as error:
                    failures.append(str(error))
        self._http = HttpTrigger(
            routes, self._functions, self.invocations, self._run_timer, self._options.grace
        )
        return await self._http.start(port)

    def _run_timer(self, name: str) -> bool:
        timer = self._timers.get(name)
        if timer is not None:
            timer.run_now()
        return timer is not None

    def _list(self, port: int | None) -> None:
        """The functions, as `func start` shows them: HTTP first, then the others."""
        served, others = [], []
        for function in self._functions:
            if function.trigger_type == "httpTrigger":
                served.append(self._http_line(function, port))
            else:
                others.append(f"\t{function.name}: {function.trigger_type}")
        if port is not None:
            _say(f"Now listening on: http://localhost:{port}")
        _say("\nFunctions:\n\n" + "\n\n".join(sorted(served) + sorted(others)) + "\n")

    def _http_line(self, function: Function, port: int | None) -> str:
        if port is None:
            return f"\t{function.name}: httpTrigger (not served: --no-http)"
        methods = ",".join(str(method) for method in function.trigger.get("methods") or ())
        template = function.trigger.get("route") or function.name
        path = f"{self._settings.route_prefix}/{template}".strip("/")
        shown = f"[{methods}] " if methods else ""
        return f"\t{function.name}: {shown}http://localhost:{port}/{path}"

    async def _end(self) -> None:
        """Stop receiving, let what runs finish within the grace, close all clients."""
        stops = [trigger.stop(self._options.grace) for trigger in self._triggers]
        if self._http is not None:
            stops.append(self._http.stop())
        results = await asyncio.gather(*stops, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                log.warning("while stopping: %s: %s", type(error).__name__, error)


def _disabled(function: Function, environment: Mapping[str, str] = os.environ) -> bool:
    value = environment.get(f"AzureWebJobs.{function.name}.Disabled", "")
    return value.lower() in {"true", "1"}


def _takes_sdk_type(function: Function) -> bool:
    properties = function.trigger.get("properties") or {}
    return properties.get("SupportsDeferredBinding") is True


def _say(text: str) -> None:
    print(text, flush=True)
