"""The app and everything it talks to, on this machine, until Ctrl-C: ``python -m local.start``.

    --port 7071          where HTTP listens (environment: PORT)
    --store table        or `cosmos`: where orders and records are kept (STORE)
    --host local         or `func`: Azure Functions Core Tools, where they are installed
    --no-service-bus     only Azurite: orders come through the Storage queue (AZURITE_ONLY=1)

It stops what it started, and nothing else. When one part ends by itself, it says which, stops
the rest, and exits with 1.
"""

import argparse
import contextlib
import http.client
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from azure.core.exceptions import ResourceExistsError
from azure.storage.queue import QueueServiceClient

from local import run_file
from local.introduction import ENTITIES, entity_names, introduction
from local.mail import MailCatcher
from local.payments import PaymentProvider
from local.run_file import RunFile, Running
from local.services.azurite import STANDARD_PORTS, Azurite
from local.services.cosmos import CosmosServer
from local.services.processes import LOOPBACK, ChildProcess, PortInUse, ServiceError, port_is_free
from local.services.telemetry_sink import TelemetrySink

if TYPE_CHECKING:
    from local.servicebus import Broker

ROOT = Path(__file__).parents[1]
STORES = ("table", "cosmos")
STORAGE_QUEUE = "orders"
SERVICE_BUS_PORT = 5672
HOST_START_SECONDS = 60.0
# The host gives running invocations ten seconds to finish.
HOST_STOP_SECONDS = 12.0
WATCH_SECONDS = 0.2


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    port: int
    store: str
    host: str
    service_bus: bool
    app: Path
    run_file: Path


class Interrupted(BaseException):
    """Somebody asked for the end: Ctrl-C, a closed terminal, or `kill`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until asked to end; the exit code."""
    options = parse(arguments)
    try:
        with contextlib.ExitStack() as parts, _ending_on_signals():
            run(options, parts)
    except Interrupted:
        print("\nStopped everything.")
        return 0
    except ServiceError as error:
        print(f"\n{error}\nStopped everything else.", file=sys.stderr)
        return 1


def parse(arguments: Sequence[str] | None) -> Options:
    """The options from the command line, else from the environment, else the defaults."""
    environment = os.environ
    parser = argparse.ArgumentParser(prog="python -m local.start", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--port", type=int, default=environment.get("PORT") or "7071")
    parser.add_argument("--store", choices=STORES)
    parser.add_argument("--host", choices=["local", "func"], default="local")
    parser.add_argument("--no-service-bus", action="store_true")
    parser.add_argument("--app", type=Path, default=ROOT, help="folder of function_app.py")
    parser.add_argument("--run-file", type=Path, default=run_file.DEFAULT)
    given = parser.parse_args(arguments)
    store = given.store or environment.get("STORE") or "table"
    if store not in STORES:
        parser.error(f"STORE: {store!r} is none of {', '.join(STORES)}")
    return Options(
        port=given.port,
        store=store,
        host=given.host,
        service_bus=not (given.no_service_bus or environment.get("AZURITE_ONLY") == "1"),
        app=given.app.resolve(),
        run_file=given.run_file,
    )


def run(options: Options, parts: contextlib.ExitStack) -> NoReturn:
    """Start everything, say how to use it, and watch it.

    parts: gets each part as it starts, so that the last one started is the first to end.

    Raises ServiceError when a part does not come up, or ends by itself.
    """
    command = _host_command(options)
    if not port_is_free(options.port):
        raise ServiceError(f"port {options.port} is in use: choose another one with PORT=")
    file = parts.enter_context(RunFile(options.run_file))
    _copy_settings(options.app)

    broker = _broker(parts) if options.service_bus else None
    azurite = _azurite(parts)
    cosmos = parts.enter_context(CosmosServer()) if options.store == "cosmos" else None
    sink = parts.enter_context(TelemetrySink())
    provider = parts.enter_context(PaymentProvider()) if broker else None
    mails = parts.enter_context(MailCatcher()) if broker else None

    environment = {
        **os.environ,
        **sink.environment(export_seconds=5.0),
        # The interpreter that runs this also runs the app, whatever else is on PATH.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "IDEMPOTENCY_STORE": options.store,
        "AzureWebJobsStorage": _storage_setting(options, azurite),
        # Empty, not absent: the host adds from local.settings.json what is absent.
        "ServiceBusConnection": broker.connection_string if broker else "",
        "SERVICEBUS_ENTITY_FILE": str(ENTITIES),
        "OTEL_SERVICE_NAME": os.environ.get("OTEL_SERVICE_NAME", "orders"),
        "PAYMENT_PROVIDER_URL": provider.url if provider else "",
        "MAIL_PROVIDER_URL": mails.url if mails else "",
        "COSMOS_CONNECTION": cosmos.connection_string if cosmos else "",
    }
    host = ChildProcess(
        options.host,
        command,
        environment=environment,
        folder=options.app if options.host == "func" else ROOT,
        to_terminal=True,
        grace=HOST_STOP_SECONDS,
    )
    parts.enter_context(host)
    host.wait_until(
        lambda: _answers(options.port),
        within=HOST_START_SECONDS,
        what=f"it answered on port {options.port}",
    )
    children = [azurite.process, *([cosmos.process] if cosmos else []), host]
    running = Running(
        url=f"http://{LOOPBACK}:{options.port}/",
        storage=azurite.connection_string,
        storage_queues=[STORAGE_QUEUE],
        telemetry=sink.url,
        service_bus=broker.connection_string if broker else None,
        service_bus_queues=entity_names("Queues") if broker else [],
        cosmos=cosmos.connection_string if cosmos else None,
        payments=provider.url if provider else None,
        mails=mails.url if mails else None,
        processes={"start": os.getpid(), **{child.name: child.pid for child in children}},
    )
    file.write(running)
    print(introduction(running), flush=True)
    _watch(children)


def _host_command(options: Options) -> list[str]:
    if options.host == "local":
        host = ["-m", "local.host", "--app", str(options.app), "--port", str(options.port)]
        return [sys.executable, *host]
    if shutil.which("func") is None:
        raise ServiceError(
            "func: Azure Functions Core Tools are not on PATH; install them"
            " (https://learn.microsoft.com/azure/azure-functions/functions-run-local)"
            " or leave HOST=func out"
        )
    if options.service_bus:
        print(
            "Core Tools with the local Service Bus is not run by this project's tests. The other"
            " way is Microsoft's emulator, which takes the same connection string:"
            " https://learn.microsoft.com/azure/service-bus-messaging/test-locally-with-service-bus-emulator"
        )
    return ["func", "start", "--port", str(options.port)]


def _copy_settings(app: Path) -> None:
    """Make local.settings.json from the sample; one that is there is the person's own."""
    sample, settings = app / "local.settings.sample.json", app / "local.settings.json"
    if sample.exists() and not settings.exists():
        shutil.copyfile(sample, settings)
        print(f"Copied {sample.name} to {settings.name}: yours to change.")


def _broker(parts: contextlib.ExitStack) -> "Broker":
    # Imported here: it needs a package with a C extension that `--no-service-bus` does without.
    from local.servicebus import Broker, Entities

    port = SERVICE_BUS_PORT if port_is_free(SERVICE_BUS_PORT) else 0
    if port == 0:
        print(f"Port {SERVICE_BUS_PORT} is in use: Service Bus listens on another one.")
    return parts.enter_context(Broker(Entities.load(ENTITIES), host=LOOPBACK, port=port))


def _azurite(parts: contextlib.ExitStack) -> Azurite:
    """Storage with the queues that messages come in through; the app makes its own tables."""
    try:
        azurite = parts.enter_context(Azurite(ports=STANDARD_PORTS))
    except PortInUse as error:
        print(f"Port {error.port} is in use: Azurite listens on other ones than usual.")
        azurite = parts.enter_context(Azurite())
    with (
        QueueServiceClient.from_connection_string(azurite.connection_string) as service,
        contextlib.suppress(ResourceExistsError),
    ):
        service.create_queue(STORAGE_QUEUE)
    return azurite


def _storage_setting(options: Options, azurite: Azurite) -> str:
    if azurite.ports == STANDARD_PORTS and not options.service_bus:
        return "UseDevelopmentStorage=true"
    return azurite.connection_string


def _answers(port: int) -> bool:
    """Whether HTTP answers there, with whatever."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status > 0
    finally:
        connection.close()


def _watch(children: Sequence[ChildProcess]) -> NoReturn:
    while True:
        for child in children:
            if not child.running:
                raise child.failure(f"ended by itself with exit code {child.exit_code}")
        time.sleep(WATCH_SECONDS)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Turn the first request to end into Interrupted; ignore any while things are ended.

    A shell that starts this in the background has SIGINT ignored: it is asked for again here.
    """
    requests = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def ignore() -> None:
        for request in requests:
            signal.signal(request, signal.SIG_IGN)

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore()
        raise Interrupted

    for request in requests:
        signal.signal(request, interrupt)
    try:
        yield
    finally:
        ignore()


if __name__ == "__main__":
    sys.exit(main())
