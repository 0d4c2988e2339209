"""What telemetry costs per message in process time: ``python -m benchmarks.telemetry_cost``.

Two-phase deliveries over a store in memory, fresh and duplicate, with more and more of the telemetry. The
exporter is the real one, its posts go to a sink in a process of its own. Times are of one machine; the
differences between the rows are what telemetry costs there.
"""
# ruff: noqa: T201 - a report to the terminal

import argparse
import asyncio
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from local.services.telemetry_sink import TelemetrySink
from shared.idempotency import Consumer, Delivery, Observer, Policy, ResultCodec, all_of
from shared.idempotency.events import ignore
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.observed import ObservedStore
from shared.idempotency.telemetry import Links, Logs, Metrics

CODEC: ResultCodec[None] = ResultCodec(None)
TRACE_PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
_QUIET = logging.getLogger("benchmark")
_QUIET.propagate = False
_QUIET.addHandler(logging.NullHandler())


def rows() -> dict[str, Callable[[], Observer]]:
    """What is measured, each in a process of its own: a provider cannot be taken back."""
    return {
        "no observer": lambda: ignore,
        "metrics, links and logs; no exporter": lambda: all_of(Metrics(), Links(), Logs(_QUIET)),
        "... and Azure Monitor's exporter": lambda: all_of(Metrics(), Links(), Logs()),
        "... metrics alone": Metrics,
        "... links alone": Links,
        "... logs alone": Logs,
    }


async def measured(observer: Observer, messages: int) -> tuple[float, float]:
    """Microseconds per message, fresh and duplicate, in the quickest tenth of batches of a hundred.

    What is slower was slowed by others on the machine, or by the export in the background.
    """
    store = ObservedStore(MemoryStore(), observer)
    consumer = Consumer("benchmark", store, policy=Policy(memory=0), observer=observer)

    async def work() -> None:
        return None

    async def batch(first: int) -> float:
        began = time.perf_counter()
        for number in range(first, first + 100):
            delivery = Delivery(key=f"k-{number}", fingerprint="raw1:0", trace_parent=TRACE_PARENT)
            await consumer.handle(delivery, work, CODEC)
        return (time.perf_counter() - began) / 100 * 1e6

    starts = range(0, messages, 100)
    fresh = [await batch(start) for start in starts]
    duplicates = [await batch(start) for start in starts]
    return statistics.quantiles(fresh, n=10)[0], statistics.quantiles(duplicates, n=10)[0]


def one(name: str, messages: int) -> None:
    """Measure one row here, and print it as JSON."""
    if name.startswith("..."):
        from azure.monitor.opentelemetry import configure_azure_monitor

        configure_azure_monitor(enable_live_metrics=False)
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger("azure").setLevel(logging.WARNING)
    print(json.dumps(asyncio.run(measured(rows()[name](), messages))), flush=True)
    os._exit(0)  # what is not sent yet is of no interest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry_cost")
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--row", help="only this one, as JSON")
    options = parser.parse_args()
    if options.row:
        one(options.row, options.messages)
        return
    print(
        f"{platform.python_version()}, {os.cpu_count()} CPUs, {options.messages} messages a row\n"
    )
    print(f"{'microseconds per message':40}{'fresh':>10}{'duplicate':>12}")
    with TelemetrySink() as sink:
        environment = {**os.environ, **sink.environment(export_seconds=5.0)}
        for name in rows():
            command = [sys.executable, "-m", "benchmarks.telemetry_cost", "--row", name]
            done = subprocess.run(  # noqa: S603 - our own lines, by our own interpreter
                [*command, "--messages", str(options.messages)],
                capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            fresh, duplicate = json.loads(done.stdout.splitlines()[-1])
            print(f"{name:40}{fresh:10.0f}{duplicate:12.0f}", flush=True)


if __name__ == "__main__":
    main()
