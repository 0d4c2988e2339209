"""Import a file of orders into the running app: ``python -m local.import_file samples/orders.csv``.

    --run 2      the same file once more, though its content was imported before

It uploads the file and sends a message that names it, and pins its content by the blob's ETag.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient

from local import run_file
from local.services.processes import ServiceError

CONTAINER = QUEUE = "imports"


def main(arguments: Sequence[str] | None = None) -> int:
    """Upload and send, and tell what was sent; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.import_file", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    parser.add_argument("--run", default="1")
    parser.add_argument("--run-file", type=Path, default=run_file.DEFAULT)
    given = parser.parse_args(arguments)
    try:
        storage = run_file.read(given.run_file).storage
        etag = upload(storage, CONTAINER, given.file.name, given.file.read_bytes())
        message = {"blob": given.file.name, "etag": etag, "run": given.run}
        send(storage, QUEUE, message)
    except (ServiceError, AzureError, OSError) as error:
        print(f"not sent: {error}", file=sys.stderr)
        return 1
    print(f"sent {json.dumps(message)} to {QUEUE!r}; bad rows: {given.file.name}.errors.jsonl")
    return 0


def upload(storage: str, container: str, name: str, content: bytes) -> str:
    """Put a blob into the container, which is made if missing; the blob's ETag."""
    with ContainerClient.from_connection_string(storage, container) as client:
        with contextlib.suppress(ResourceExistsError):
            client.create_container()
        blob = client.upload_blob(name, content, overwrite=True)
        return str(blob.get_blob_properties().etag).strip('"')


def send(storage: str, queue: str, message: dict[str, str]) -> None:
    """Ask for an import; the app makes the queue when it starts."""
    # as it is, not in Base64: host.json says `messageEncoding: none`
    with QueueClient.from_connection_string(storage, queue) as client:
        client.send_message(json.dumps(message))


if __name__ == "__main__":
    sys.exit(main())
