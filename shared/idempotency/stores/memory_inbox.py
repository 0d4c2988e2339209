"""The inbox in this process's memory: for tests, and for trying the module without any service."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from ..clock import Clock, SystemClock
from ..errors import BusinessConflict
from ..inbox import Marker, marker_of
from ..keys import storage_id
from ..unit_of_work import Operation

type _Address = tuple[str, str]


class MemoryInbox:
    """Markers and documents that are gone with the process; a commit runs without yielding."""

    name = "memory"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._documents: dict[_Address, tuple[Mapping[str, Any], str, float]] = {}
        self._etags = itertools.count(1)

    async def read(self, key: str) -> Marker | None:
        held = self._documents.get((key, storage_id(key)))
        if held is None:
            return None
        document, etag, written_at = held
        age = self._clock.monotonic() - written_at
        return marker_of(copy.deepcopy(document), key=key, etag=etag, age=age)

    async def commit(
        self, key: str, marker: Mapping[str, Any], operations: tuple[Operation, ...]
    ) -> bool:
        if (key, storage_id(key)) in self._documents:
            return False
        for index, operation in enumerate(operations):
            status = self._refusal((key, operation.id), operation)
            if status is not None:
                raise BusinessConflict(
                    f"{operation.kind} of document {operation.id!r} was refused ({status}); "
                    "nothing was written",
                    operation=index,
                    status=status,
                )
        self._write((key, storage_id(key)), marker)
        for operation in operations:
            if operation.kind == "delete":
                del self._documents[key, operation.id]
            else:
                self._write((key, operation.id), operation.document or {})
        return True

    async def close(self) -> None:
        return None

    def documents(self) -> dict[_Address, Mapping[str, Any]]:
        """Everything kept, by (key, document id)."""
        return {address: held[0] for address, held in self._documents.items()}

    def _refusal(self, address: _Address, operation: Operation) -> int | None:
        held = self._documents.get(address)
        match operation.kind:
            case "create":
                return None if held is None else 409
            case "replace" | "delete":
                if held is None:
                    return 404
                return None if held[1] == operation.etag else 412
            case "upsert":
                return None

    def _write(self, address: _Address, document: Mapping[str, Any]) -> None:
        # a copy: what is kept must not change with the handler's own objects
        kept = copy.deepcopy(document)
        self._documents[address] = (kept, str(next(self._etags)), self._clock.monotonic())
