"""The unit of work: the business writes that an inbox handler wants committed with its marker."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from .attempt import Attempt, current_attempt
from .documents import RESERVED
from .errors import ConfigurationError, MalformedContent
from .keys import storage_id

MOST_OPERATIONS = 99
"""Beside the marker: both services take 100 operations in one transaction."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One write of a unit of work, to the document ``id`` of the key's partition."""

    kind: Literal["create", "upsert", "replace", "delete"]
    id: str
    document: Mapping[str, Any] | None = None
    etag: str | None = None


class UnitOfWork:
    """The business writes of one attempt, in one partition; committed with the marker, or not at all.

    Document ids are unique within the key's partition. Values are JSON values.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.marker: Mapping[str, Any] = {}
        self.operations: list[Operation] = []
        self._ids = {storage_id(key)}
        self._marked = False

    def mark(self, document: Mapping[str, Any]) -> None:
        """Create the business entity that is its own marker: its id is the key's.

        Reserved properties are added to it; later business updates must leave them in place. It has
        no expiry, and deleting it reopens the window for duplicates.
        """
        if self._marked:
            raise ConfigurationError("a unit of work has one marker; mark() was called twice")
        taken = [name for name in document if name.startswith(RESERVED)]
        if taken:
            raise ConfigurationError(f"properties named {RESERVED}* are reserved: {taken}")
        self._marked = True
        self.marker = document

    def create(self, id_: str, document: Mapping[str, Any]) -> None:
        """Create a document; a BusinessConflict when there is one of this id."""
        self._add(Operation(kind="create", id=id_, document=document))

    def upsert(self, id_: str, document: Mapping[str, Any]) -> None:
        """Write a document whether it exists or not."""
        self._add(Operation(kind="upsert", id=id_, document=document))

    def replace(self, id_: str, document: Mapping[str, Any], *, etag: str) -> None:
        """Replace a document that is still the one ``etag`` names; otherwise a BusinessConflict."""
        self._add(Operation(kind="replace", id=id_, document=document, etag=etag))

    def delete(self, id_: str, *, etag: str) -> None:
        """Delete a document that is still the one ``etag`` names; otherwise a BusinessConflict."""
        self._add(Operation(kind="delete", id=id_, etag=etag))

    def _add(self, operation: Operation) -> None:
        if operation.id != storage_id(operation.id):
            raise ConfigurationError(
                f"{operation.id!r} is no id a store can hold; see storage_id()"
            )
        if operation.id in self._ids:
            raise ConfigurationError(
                f"a unit of work writes each document once; {operation.id!r} is written twice, or "
                "is the marker's id"
            )
        if len(self.operations) >= MOST_OPERATIONS:
            raise MalformedContent(
                f"a transaction takes {MOST_OPERATIONS} operations beside its marker; "
                f"{operation.kind} of document {operation.id!r} is one too many",
                reason="TooManyOperations",
            )
        self._ids.add(operation.id)
        self.operations.append(operation)


# with the owner of its attempt: a consumer protected within a handler is not in the handler's unit
_current: ContextVar[tuple[str, UnitOfWork]] = ContextVar("idempotency_unit_of_work")


def current_unit() -> UnitOfWork:
    """The unit of work of the calling handler; raises ConfigurationError outside an inbox handler."""
    owner, unit = _current.get(("", None))
    if unit is None or current_attempt().owner != owner:
        raise ConfigurationError(
            "there is no unit of work: current_unit() works only inside a handler protected by an Inbox"
        )
    return unit


def enter_unit(unit: UnitOfWork, attempt: Attempt) -> None:
    """Make ``unit`` the current one of the calling task, in that attempt."""
    _current.set((attempt.owner, unit))
