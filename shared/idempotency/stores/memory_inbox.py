"""The inbox in this process's memory: for tests, and for trying the module without any service."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from ..clock import Clock, SystemClock
from ..inbox_store import Operation, Refused, StoredDocument
from ..outbox import DUE_AT, Parcel, parcels_in, postponed

type _Address = tuple[str, str]


class MemoryInbox:
    """Documents that are gone with the process; a commit runs without yielding.

    ``announces`` makes it find pending messages as Table Storage does, by pointers.
    """

    name = "memory"

    def __init__(self, clock: Clock | None = None, *, announces: bool = False) -> None:
        self.announces = announces
        self.pointers: dict[tuple[float, str], Parcel] = {}
        self._clock = clock or SystemClock()
        self._documents: dict[_Address, tuple[Mapping[str, Any], str, float]] = {}
        self._etags = itertools.count(1)

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        held = self._documents.get((partition, id_))
        if held is None:
            return None
        document, etag, written_at = held
        age = self._clock.monotonic() - written_at
        return StoredDocument(document=copy.deepcopy(document), etag=etag, age=age)

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        for index, operation in enumerate(operations):
            status = self._refusal((partition, operation.id), operation)
            if status is not None:
                return Refused(index=index, status=status)
        for operation in operations:
            self._do((partition, operation.id), operation)
        return None

    async def announce(self, parcel: Parcel) -> None:
        self.pointers[_pointer(parcel)] = msgspec.structs.replace(parcel, messages=())

    async def forget(self, parcel: Parcel) -> None:
        self.pointers.pop(_pointer(parcel), None)

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        pending = parcels_in(
            (
                (partition, StoredDocument(document=document, etag=etag))
                for (partition, _), (document, etag, _) in self._documents.items()
                if DUE_AT in document and (self.announces or document[DUE_AT] <= now)
            ),
            limit=len(self._documents),
        )
        if not self.announces:
            return pending[:limit]
        messages = {parcel.owner: parcel.messages for parcel in pending}
        return tuple(
            msgspec.structs.replace(pointer, messages=messages.get(pointer.owner, ()))
            for _, pointer in sorted(self.pointers.items(), key=lambda held: held[0])
            if pointer.due_at <= now
        )[:limit]

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        if not self.announces:
            claimed, claims = postponed(parcel, until)
            return claimed if await self.commit(parcel.partition, claims) is None else None
        if self.pointers.pop(_pointer(parcel), None) is None:
            return None
        claimed = msgspec.structs.replace(parcel, due_at=until, sends=parcel.sends + 1)
        await self.announce(claimed)
        return claimed

    async def close(self) -> None:
        return None

    def documents(self) -> dict[_Address, Mapping[str, Any]]:
        """Everything kept, by (partition, document id)."""
        return {address: held[0] for address, held in self._documents.items()}

    def _refusal(self, address: _Address, operation: Operation) -> int | None:
        held = self._documents.get(address)
        match operation.kind:
            case "create":
                return None if held is None else 409
            case "upsert":
                return None
            case "replace" | "patch" | "delete":
                if held is None:
                    return 404
                return None if operation.etag in (None, held[1]) else 412

    def _do(self, address: _Address, operation: Operation) -> None:
        if operation.kind == "delete":
            del self._documents[address]
            return
        document = dict(operation.document)
        if operation.kind == "patch":
            before = self._documents[address][0]
            added = {n: before.get(n, 0) + by for n, by in operation.increment.items()}
            document = {**before, **document, **added}
        # a copy: what is kept must not change with the handler's own objects
        kept = copy.deepcopy(document)
        self._documents[address] = (kept, str(next(self._etags)), self._clock.monotonic())


def _pointer(parcel: Parcel) -> tuple[float, str]:
    return parcel.due_at, parcel.owner
