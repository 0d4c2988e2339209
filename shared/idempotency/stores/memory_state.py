"""Guarded documents in this process's memory: for tests, and for trying the module without any service."""

import copy
import itertools

from ..states import Document, StoredState


class MemoryStateStore:
    """Documents that are gone with the process; each method runs without yielding."""

    name = "memory"

    def __init__(self) -> None:
        self._documents: dict[str, tuple[Document, str]] = {}
        self._etags = itertools.count(1)

    async def read(self, id_: str) -> StoredState | None:
        held = self._documents.get(id_)
        if held is None:
            return None
        document, etag = held
        return StoredState(document=copy.deepcopy(document), etag=etag)

    async def create(self, id_: str, document: Document) -> bool:
        if id_ in self._documents:
            return False
        self._write(id_, document)
        return True

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        if id_ not in self._documents or self._documents[id_][1] != etag:
            return False
        self._write(id_, document)
        return True

    async def close(self) -> None:
        return None

    def documents(self) -> dict[str, Document]:
        """Everything kept, by id."""
        return {id_: document for id_, (document, _) in self._documents.items()}

    def _write(self, id_: str, document: Document) -> None:
        # a copy: what is kept must not change with the handler's own objects
        self._documents[id_] = (copy.deepcopy(document), str(next(self._etags)))
