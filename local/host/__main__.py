"""`python -m local.host`: run a function app on this machine, as `func start` does."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from . import hostjson
from .host import Host, Options
from .storage_queue import HIDDEN
from .unwatched import unwatched
from .worker import IndexingError, Worker

GRACE = 10.0  # seconds that running invocations get to finish in after Ctrl-C

# Loggers of SDKs that write a line or more for each call.
NOISY = (
    "azure.core",
    "azure.servicebus",
    "azure.functions",
    "azure.identity",
    "azure.monitor",
    "aiohttp",
    "grpc",
)
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}


def main() -> int:
    arguments = _arguments()
    app = Path(arguments.app).resolve()
    try:
        _apply_settings(app, arguments.settings)
        settings = hostjson.load(app)
    except (hostjson.HostJsonError, ValueError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    _configure_logging(settings.log_level, quiet=arguments.quiet)
    port = None if arguments.no_http else arguments.port
    if port:
        os.environ.setdefault("WEBSITE_HOSTNAME", f"localhost:{port}")
    try:
        return asyncio.run(_run(app, Options(settings, port, arguments.grace, arguments.hide)))
    except KeyboardInterrupt:  # while the app was loading: afterwards Ctrl-C is an orderly stop
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.host", description=__doc__)
    parser.add_argument("--app", default=".", help="directory of the app (default: this one)")
    parser.add_argument("--port", type=int, default=7071, help="HTTP port, 0 for a free one")
    parser.add_argument("--settings", help="settings file (default: local.settings.json)")
    parser.add_argument("--no-http", action="store_true", help="serve no HTTP at all")
    parser.add_argument("--quiet", action="store_true", help="log failures only")
    parser.add_argument(
        "--grace", type=float, default=GRACE, help="seconds to finish in after Ctrl-C"
    )
    parser.add_argument(
        "--hide",
        type=float,
        default=os.environ.get("LOCAL_HOST_HIDE", HIDDEN),
        help="seconds a Storage queue message stays invisible while its function runs, renewed at"
        " half time (default: as in Azure)",
    )
    return parser.parse_args()


def _apply_settings(app: Path, named: str | None) -> None:
    """The file's Values become environment variables, unless these are set already.

    Raises ValueError for a file that is no settings file; a missing default file is fine.
    """
    path = Path(named) if named else app / "local.settings.json"
    if not named and not path.exists():
        return
    try:
        values = json.loads(path.read_text("utf-8-sig")).get("Values", {})
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is no settings file: {error}") from None
    for name, value in values.items():
        os.environ.setdefault(name, str(value))


def _configure_logging(level: str, *, quiet: bool) -> None:
    """The app's logs on the root logger, as in the worker; the host's own apart from them."""
    handler = logging.StreamHandler(sys.stdout)
    formatter = logging.Formatter("[%(asctime)s.%(msecs)03dZ] %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(LEVELS.get(level.lower(), logging.INFO))
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    host = logging.getLogger("local.host")
    host.addHandler(handler)
    host.propagate = False
    host.setLevel(logging.WARNING if quiet else logging.INFO)


async def _run(app: Path, options: Options) -> int:
    """Worker and app on this loop, the host on another one in a thread."""
    try:
        worker = await Worker.start(app)
    except IndexingError as error:
        print(
            error.stack_trace, file=sys.stderr
        )  # what is wrong comes last, where it is looked for
        print(f"The app does not load: {error}", file=sys.stderr, flush=True)
        return 1
    loop = asyncio.get_running_loop()
    host = Host(worker, loop, options)
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            _leave(130, "Stopped at once")
        host.request_stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    apart = unwatched()
    code = await loop.run_in_executor(None, lambda: apart.run(asyncio.run, host.run()))
    if host.invocations.running:
        _leave(code, f"{host.invocations.running} invocation(s) did not finish in time")
    await worker.stop()
    # The app's clients live as long as its process, here as in Azure: that nobody closed them is no news.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    return code


def _leave(code: int, words: str) -> None:
    """End now: a thread that runs a synchronous function cannot be stopped in any other way."""
    print(words, flush=True)
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
