"""What `make start` says when everything is up."""

import json
from pathlib import Path

from local.run_file import Running

ENTITIES = Path(__file__).with_name("entities.json")


def introduction(running: Running) -> str:
    """What runs, and how to send something, for the person at the terminal."""
    post = (
        f"curl -i {running.url}api/orders -H 'Content-Type: application/json'"
        " -H 'Idempotency-Key: order-1' -d @samples/order.json"
    )
    lines = ["", f"The app         {running.url}api/   ({running.url}api/health)"]
    if running.service_bus:
        lines += [
            f"Service Bus     {running.service_bus}",
            f"                queues: {', '.join(running.service_bus_queues)};"
            f" topics: {', '.join(entity_names('Topics'))}",
        ]
    lines += [
        f"Storage         {running.storage}",
        f"                queues: {', '.join(running.storage_queues)}; kept in memory",
    ]
    if running.cosmos:
        lines += [f"Cosmos DB       {running.cosmos}"]
    if running.payments:
        lines += [f"Payments        {running.payments}/ledger   (every charge there was)"]
    if running.mails:
        lines += [f"Mails           {running.mails}/mails    (all that customers were sent)"]
    lines += [
        f"Telemetry       {running.telemetry}query?metric=idempotency.duplicates",
        "",
        "Send:",
    ]
    if running.service_bus:
        lines += ["  make send FILE=samples/order.json"]
    lines += [
        "  make send FILE=samples/order.json TO=storage-queue",
        "  make import FILE=samples/orders.csv",
        f"  {post}",
        "  or any Service Bus or Storage queue client, with the connection strings above",
        "",
        "Ctrl-C stops all of it.",
    ]
    return "\n".join(lines)


def entity_names(kind: str) -> list[str]:
    """The names of all `Queues` or `Topics` of the local Service Bus."""
    namespaces = json.loads(ENTITIES.read_text())["UserConfig"]["Namespaces"]
    return [entity["Name"] for entity in namespaces[0].get(kind, [])]
