"""Doubles for tests of imports: blobs in memory, a queue that delivers again, orders that are counted."""

import json
from collections.abc import Mapping
from typing import Any

from blueprints.orders import place_order
from shared.blobs import Piece
from shared.idempotency import (
    Consumer,
    Delivery,
    Effects,
    Handled,
    IdempotencyError,
    Inbox,
    Outcome,
    PermanentFailure,
    Policy,
    Rerun,
    ResultCodec,
)
from shared.idempotency.documents import business_of
from shared.idempotency.fingerprint import canonical_json
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.import_messages import ERRORS, ImportMessage, Progress, message_key
from shared.imports import Importer
from tests.unit.doubles import Wire, WiredInbox, WiredStore

NAME = "orders.jsonl"
POLICY = Policy(memory=0.0)


def an_order(order_id: str, **changes: Any) -> dict[str, Any]:
    line = {"sku": "tea", "quantity": 2, "unit_price": "4.90"}
    return {
        "order_id": order_id,
        "customer_id": "c-1",
        "currency": "EUR",
        "lines": [line],
        **changes,
    }


def jsonl(*rows: dict[str, Any] | str) -> bytes:
    return b"".join(
        (row if isinstance(row, str) else json.dumps(row)).encode() + b"\n" for row in rows
    )


class MemoryBlobs:
    """Blobs and their staged parts; each write gives a blob another ETag."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.reads = 0

    def put(self, name: str, content: bytes) -> str:
        self.contents[name] = content
        self.etags[name] = f"0x{int(self.etags.get(name, '0x0'), 16) + 1:X}"
        return self.etags[name]

    async def etag(self, name: str) -> str:
        if name not in self.contents:
            raise PermanentFailure("BlobNotFound", "there is no such blob")
        return self.etags[name]

    async def read(self, name: str, etag: str, offset: int, length: int) -> Piece:
        self.reads += 1
        if await self.etag(name) != etag:
            raise PermanentFailure("BlobChanged", "it was written since")
        data = self.contents[name][offset : offset + length]
        return Piece(data, at_end=offset + len(data) >= len(self.contents[name]))

    async def stage(self, name: str, part: str, data: bytes) -> None:
        self.parts.setdefault(name, {})[part] = data

    async def put_together(self, name: str, parts: str) -> None:
        of_blob = self.parts.get(name, {})
        found = [data for part, data in sorted(of_blob.items()) if part.startswith(parts)]
        if found:
            self.put(name, b"".join(found))
        else:
            self.contents.pop(name, None)

    def errors(self, name: str = NAME) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.contents.get(name + ERRORS, b"").splitlines()]


class Bench:
    """An import's consumer over stores in memory, and its queue.

    ``fails`` maps an order's id to what its handler raises, once.
    """

    def __init__(
        self, *, slice_seconds: float = 60.0, chunk_rows: int = 3, stores: "Bench | None" = None
    ) -> None:
        self.blobs: MemoryBlobs = stores.blobs if stores else MemoryBlobs()
        self.records: MemoryStore = stores.records if stores else MemoryStore()
        self.orders: MemoryInbox = stores.orders if stores else MemoryInbox()
        self.queue: list[bytes] = []
        self.fails: dict[str, BaseException] = {}
        self.ran: list[str] = []
        self.sent: list[bytes] = []
        self.remembers = True
        self.outcomes: list[Outcome] = []
        self.after_sending: list[Exception] = []
        self.wire, self.rows_wire = Wire(), Wire()
        self.importer = Importer(
            self.blobs,
            Inbox(
                "process_order",
                WiredInbox(self.orders, self.rows_wire),
                entity_is_marker=True,
                policy=POLICY,
            ),
            self._place,
            self._send,
            slice_seconds=slice_seconds,
            chunk_seconds=20.0,
            chunk_rows=chunk_rows,
        )
        self.consumer = Consumer(
            "import_orders",
            WiredStore(self.records, self.wire),
            policy=POLICY,
            effects=Effects(
                policy=Rerun(provider_key_retention=float("inf")),
                settle=20.0,
                unknown_effect=lambda error: False,
            ),
        )

    def _place(self, body: bytes) -> None:
        order_id = json.loads(body)["order_id"]
        if error := self.fails.pop(order_id, None):
            raise error
        if self.remembers:
            self.ran.append(order_id)
        place_order(body, None)

    async def _send(self, message: bytes) -> None:
        self.queue.append(message)
        self.sent.append(message)
        if self.after_sending:
            raise self.after_sending.pop()

    async def deliver(self, message: bytes, *, again: bool = False) -> Handled[Progress | None]:
        """One delivery of a message."""
        return await self.consumer.handle(
            Delivery(
                key=message_key(message, "m-1"),
                fingerprint=canonical_json(message),
                body=message,
                redelivered=again,
            ),
            lambda: self.importer.handle(ImportMessage.of(message)),
            ResultCodec(Progress | None),
        )

    async def ask(self, name: str = NAME, **fields: Any) -> Handled[Progress | None]:
        """Ask for an import, and have it run to its end, with as many deliveries as it takes."""
        etag = await self.blobs.etag(name)
        return await self.run(json.dumps({"blob": name, "etag": etag, **fields}).encode())

    async def run(self, *messages: bytes) -> Handled[Progress | None]:
        self.queue.extend(messages)
        deliveries = 0
        while self.queue:
            message, again = self.queue.pop(0), False
            while True:
                deliveries += 1
                assert deliveries < 300, "it goes round in circles"
                try:
                    handled = await self.deliver(message, again=again)
                    break
                except (IdempotencyError, LookupError):
                    again = True
            self.outcomes.append(handled.outcome)
            if handled.outcome not in (Outcome.PROCESSED, Outcome.DUPLICATE):
                break
        return handled

    def placed(self) -> Mapping[str, dict[str, Any]]:
        """The orders there are, by their id, as far as the file says what they are."""
        found = {}
        for (partition, id_), document in self.orders.documents().items():
            order = business_of(document)
            if partition == id_ and order is not None:
                found[id_] = json.loads(json.dumps({name: order[name] for name in an_order("")}))
        return found
