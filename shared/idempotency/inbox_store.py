"""Documents in partitions, written in transactions: what an inbox needs of a store."""

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

from .errors import BusinessConflict

MOST_OPERATIONS: Final = 100
"""In one transaction, the marker included: both services say so."""


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document as the store holds it, reserved properties included.

    ``etag`` fences the next write. ``age`` is how many seconds ago it was last written, by the store's
    own clock.
    """

    document: Mapping[str, Any]
    etag: str
    age: float = 0.0


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One write to the document ``id`` of a transaction's partition.

    With ``etag`` only if the document is still the one it names. ``document`` is the whole of it for
    create, upsert and replace, and the fields to be set for patch; ``increment`` is for patch alone.
    """

    kind: Literal["create", "upsert", "replace", "patch", "delete"]
    id: str
    document: Mapping[str, Any] = {}
    increment: Mapping[str, int] = {}
    etag: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} of document {self.id!r}"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that changed nothing: the index of the operation that the store refused.

    ``status``: 409, there is such a document; 404, there is none; 412, it is not the one the ETag names.
    """

    index: int
    status: int


class InboxStore(Protocol):
    """Documents by (partition, id), of which those of one partition are written together.

    Each method is one round trip. Raises StoreUnavailable as a Store does; after that it is not known
    whether a commit took effect, and it is issued again.
    """

    @property
    def name(self) -> str:
        """A short name for metrics and logs."""
        ...

    async def read(self, partition: str, id_: str) -> StoredDocument | None:
        """Point read, strongly consistent with every commit answered before; None when there is none."""
        ...

    async def commit(self, partition: str, operations: tuple[Operation, ...]) -> Refused | None:
        """Do all operations, in this order, or none of them; None when they are done.

        ``partition`` is any text a key can be, and is told apart as keys are. Raises before anything
        is sent: MalformedContent when the service cannot hold a document or so much in one
        transaction, ConfigurationError when it cannot do an operation at all; each names the operation.
        """
        ...

    async def close(self) -> None: ...


def conflict(operation: Operation, refused: Refused, *, index: int) -> BusinessConflict:
    """What a handler's caller is told of its operation ``index`` that was refused."""
    return BusinessConflict(
        f"{operation} was refused ({refused.status}); nothing was written",
        operation=index,
        status=refused.status,
    )
