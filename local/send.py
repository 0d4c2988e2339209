"""Send a message to the running app's queue: ``python -m local.send samples/order.json``.

    --to service-bus      or `storage-queue`; whichever runs, when left out
    --queue orders
    --message-id ID       else the body's `order_id`; Service Bus only, as --property
    --property K=V        an application property; may be repeated
    --times 3             the same message again, as a producer that retries does

Service Bus itself drops the repeats of a MessageId for ten minutes. For repeats that reach the
app: `--to storage-queue`, or another --message-id and --property Deduplication-Key=ORDER_ID.

To a deployed app: SERVICEBUS_FQDN=NAME.servicebus.windows.net, and `az login`.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.storage.queue import QueueClient

from local import run_file
from local.services.processes import ServiceError

SERVICE_BUS, STORAGE_QUEUE = "service-bus", "storage-queue"


@dataclass(frozen=True)
class Sending:
    """What to send, where, and how often."""

    body: bytes
    destination: str | None
    queue: str
    message_id: str | None
    properties: dict[str | bytes, Any]
    times: int
    run_file: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Send, and tell what was sent; the exit code."""
    try:
        print(send(parse(arguments)))
    except (ServiceError, AzureError, ServiceBusError, OSError) as error:
        print(f"not sent: {error}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str] | None) -> Sending:
    """The command line, with the file read.

    Raises OSError when it cannot be read.
    """
    parser = argparse.ArgumentParser(prog="python -m local.send", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", choices=[SERVICE_BUS, STORAGE_QUEUE])
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--message-id", help="an empty one sends a message without")
    parser.add_argument("--property", action="append", default=[], metavar="K=V")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--run-file", type=Path, default=run_file.DEFAULT)
    given = parser.parse_args(arguments)
    if given.times < 1:
        parser.error("--times: at least 1")
    if unpaired := [item for item in given.property if "=" not in item]:
        parser.error(f"--property: {unpaired[0]!r} is not of the form K=V")
    return Sending(
        body=given.file.read_bytes(),
        destination=given.to,
        queue=given.queue,
        message_id=given.message_id,
        properties={k: v for k, _, v in (item.partition("=") for item in given.property)},
        times=given.times,
        run_file=given.run_file,
    )


def send(asked: Sending) -> str:
    """Send it; what was sent, in words.

    Raises ServiceError when nothing runs there or the message lacks what it needs, and the
    SDK's own errors.
    """
    deployed = os.environ.get("SERVICEBUS_FQDN")
    if deployed and asked.destination != STORAGE_QUEUE:
        with (
            DefaultAzureCredential() as credential,
            ServiceBusClient(deployed, credential) as client,
        ):
            return _to_service_bus(client, asked, deployed)
    running = run_file.read(asked.run_file)
    if asked.destination == STORAGE_QUEUE or (
        asked.destination is None and not running.service_bus
    ):
        return _to_storage_queue(running.storage, asked)
    if not running.service_bus:
        raise ServiceError("Service Bus does not run: add --to storage-queue")
    # It is on this machine: what does not work at once does not work.
    with ServiceBusClient.from_connection_string(running.service_bus, retry_total=0) as client:
        return _to_service_bus(client, asked, "the local Service Bus")


def _to_service_bus(client: ServiceBusClient, asked: Sending, where: str) -> str:
    message_id = _order_id(asked.body) if asked.message_id is None else asked.message_id
    with client.get_queue_sender(asked.queue) as sender:
        for _ in range(asked.times):
            message = ServiceBusMessage(
                asked.body,
                content_type="application/json",
                application_properties=asked.properties,
            )
            # Set afterwards: the constructor makes one up where it is given none.
            message.message_id = message_id or None
            sender.send_messages(message)
    named = f"MessageId {message_id!r}" if message_id else "no MessageId"
    return (
        f"sent {asked.times} x {len(asked.body)} bytes with {named} to {asked.queue!r} of {where}"
    )


def _to_storage_queue(connection_string: str, asked: Sending) -> str:
    if asked.message_id or asked.properties:
        raise ServiceError("a Storage queue message has neither --message-id nor --property")
    # As it is, not in Base64: host.json says `messageEncoding: none`.
    try:
        text = asked.body.decode()
    except UnicodeDecodeError:
        raise ServiceError("a Storage queue message that is not encoded must be text") from None
    with QueueClient.from_connection_string(connection_string, asked.queue) as queue:
        for _ in range(asked.times):
            queue.send_message(text)
    size = len(asked.body)
    return f"sent {asked.times} x {size} bytes to {asked.queue!r} of the local Storage queues"


def _order_id(body: bytes) -> str:
    """The business key that the producer's MessageId is. Raises ServiceError without one."""
    try:
        order_id = json.loads(body)["order_id"]
    except (ValueError, LookupError, TypeError):
        raise ServiceError("no `order_id` in the file: give --message-id") from None
    return str(order_id)


if __name__ == "__main__":
    sys.exit(main())
