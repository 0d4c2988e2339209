"""What an import of a large file takes: time for a row, and memory of the host that runs it.

    .venv/bin/python -m benchmarks.import_rows --rows 100000

The whole app in its host, over Azurite, without Service Bus: a row is one transaction, and nothing is
published. Memory is the peak of the process as the kernel counts it, before the import and after it.
"""

# ruff: noqa: T201 - a report to the terminal

import argparse
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from local.host.process import HostProcess
from local.import_file import send, upload
from local.services.azurite import Azurite

ROOT = Path(__file__).parents[1]
NAME = "orders.jsonl"


def main() -> None:
    """Import, tell now and then, and say what it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_rows", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--slice-seconds", type=float, default=120.0)
    given = parser.parse_args()
    content = b"".join(lines(given.rows))
    print(f"{given.rows} rows, {len(content) / 1e6:.1f} MB")
    with Azurite() as azurite:
        environment = {
            "AzureWebJobsStorage": azurite.connection_string,
            "ServiceBusConnection": "",
            "ORDERS_STORAGE_QUEUE": "orders",
            "IMPORT_SLICE_SECONDS": str(given.slice_seconds),
            "APPLICATIONINSIGHTS_CONNECTION_STRING": "",
        }
        with HostProcess(ROOT, environment=environment) as host:
            etag = upload(azurite.connection_string, "imports", NAME, content)
            before, began = peak_of(host.pid), time.monotonic()
            send(azurite.connection_string, "imports", {"blob": NAME, "etag": etag})
            tell(host, given.rows)
            took, after = time.monotonic() - began, peak_of(host.pid)
            slices = len(re.findall("import_orders '.*': processed", host.output))
    print(
        f"{took:.0f} s, {given.rows / took:.0f} rows a second, {took / given.rows * 1e3:.2f} ms each"
    )
    print(f"peak of the host: {before:.0f} MB before, {after:.0f} MB after; {slices} slices")


def lines(rows: int) -> Iterator[bytes]:
    """Orders, one to a line."""
    for number in range(rows):
        line = {"sku": "tea-darjeeling", "quantity": 2, "unit_price": "4.90"}
        order = {"order_id": f"ord-{number:08}", "customer_id": "cust-42", "currency": "EUR"}
        yield json.dumps({**order, "lines": [line]}).encode() + b"\n"


def tell(host: HostProcess, rows: int) -> None:
    """Until so many rows are done."""
    told = 0
    while told < rows:
        time.sleep(1.0)
        found = re.findall(rf"import of {NAME}: (\d+) rows", host.output)
        done = int(found[-1]) if found else 0
        if done // 10_000 > told // 10_000:
            print(f"  {done} rows, peak {peak_of(host.pid):.0f} MB", flush=True)
        told = done


def peak_of(pid: int) -> float:
    """The most memory a process has had so far, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) / 1024


if __name__ == "__main__":
    main()
