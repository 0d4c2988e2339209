"""The unit of work: the business writes that an inbox handler wants committed with its marker."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from .attempt import Attempt, current_attempt
from .documents import DELETED, RESERVED, business_of, is_marker
from .errors import ConfigurationError, MalformedContent
from .inbox_store import MOST_OPERATIONS, Operation, StoredDocument
from .keys import storage_id
from .outbox import Message, Property, check_message

MOST_PATCHED_FIELDS: Final = 10
"""In one operation: Cosmos DB takes no more."""

type Read = Callable[[str], Awaitable[StoredDocument | None]]
"""Reads a document of the unit's partition by its id."""


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """A business document as it was read: what a replace or delete is conditional on.

    ``reserved`` are the properties that make it a marker; they stay whatever becomes of ``document``.
    """

    id: str
    document: Mapping[str, Any]
    etag: str
    reserved: Mapping[str, Any] = {}


class UnitOfWork:
    """The business writes of one attempt, in one partition; committed with the marker, or not at all.

    The partition follows from the key and is fixed before the handler runs: no operation can name
    another. Document ids are unique within it. Values are JSON values.
    """

    def __init__(
        self,
        key: str,
        read: Read,
        *,
        entity_is_marker: bool,
        message_ids: Callable[[int], str] | None = None,
    ) -> None:
        """``message_ids`` gives the MessageId of an ordinal; None where nothing can be sent."""
        self.operations: list[Operation] = []
        self.messages: list[Message] = []
        self.entity: Mapping[str, Any] | None = None
        self._read = read
        self._entity_is_marker = entity_is_marker
        self._ids = {storage_id(key)} if entity_is_marker else set()
        self._message_ids = message_ids
        self._sealed = False

    def mark(self, document: Mapping[str, Any]) -> None:
        """Create the business entity that is its own marker: its id is the key's storage form.

        Reserved properties are added to it, which replace(), patch() and delete() leave in place in
        any later unit of work. It has no expiry. Who writes it by other means keeps the properties
        named ``idempotency_*``; who deletes it by other means reopens the window for duplicates.
        """
        if not self._entity_is_marker:
            raise ConfigurationError("mark() is for an Inbox made with entity_is_marker=True")
        if self.entity is not None:
            raise ConfigurationError("a unit of work has one marker; mark() was called twice")
        self._check_open()
        self.entity = _unreserved(document)

    async def read(self, id_: str) -> Current | None:
        """The document of this id in the unit's partition, to be replaced or deleted; one round trip."""
        found = await self._read(_checked(id_))
        document = None if found is None else business_of(found.document)
        if found is None or document is None:
            return None
        reserved = {n: v for n, v in found.document.items() if n not in document}
        return Current(id=id_, document=document, etag=found.etag, reserved=reserved)

    def create(self, id_: str, document: Mapping[str, Any]) -> None:
        """Create a document; a BusinessConflict when there is one of this id."""
        self._add(Operation(kind="create", id=id_, document=_unreserved(document)))

    def upsert(self, id_: str, document: Mapping[str, Any]) -> None:
        """Write a document whether it exists or not.

        Not for an entity that is a marker: its reserved properties would be gone.
        """
        self._add(Operation(kind="upsert", id=id_, document=_unreserved(document)))

    def replace(self, current: Current, document: Mapping[str, Any]) -> None:
        """Replace a document that is still as it was read; otherwise a BusinessConflict."""
        whole = {**_unreserved(document), **current.reserved}
        self._add(Operation(kind="replace", id=current.id, document=whole, etag=current.etag))

    def patch(
        self,
        id_: str,
        fields: Mapping[str, Any] | None = None,
        *,
        increment: Mapping[str, int] | None = None,
        etag: str | None = None,
    ) -> None:
        """Set top-level fields of a document, or add to them, without reading it.

        ``fields``: texts, numbers and booleans; lists and objects, and taking a field away, need
        replace(). ``increment``: on Cosmos DB alone, Table Storage has no such operation and the
        commit is refused. A BusinessConflict when there is no document, or not the one ``etag`` names.
        """
        fields, increment = _unreserved(fields or {}), _unreserved(increment or {})
        for name, value in fields.items():
            if not isinstance(value, str | int | float):
                raise ConfigurationError(
                    f"patch of document {id_!r}: field {name} is {type(value).__name__}, not a text, "
                    "number or boolean; replace the document"
                )
        names = [*fields, *increment]
        if not 0 < len(names) <= MOST_PATCHED_FIELDS or len(names) > len({*names}):
            raise ConfigurationError(
                f"patch of document {id_!r}: 1 to {MOST_PATCHED_FIELDS} fields, each once"
            )
        self._add(Operation(kind="patch", id=id_, document=fields, increment=increment, etag=etag))

    def delete(self, current: Current) -> None:
        """Delete a document that is still as it was read; otherwise a BusinessConflict.

        Of an entity that is a marker a tombstone stays, so that duplicates are still recognised; its
        id is not used again.
        """
        if is_marker(current.reserved):
            tombstone = {**current.reserved, DELETED: True}
            self._add(
                Operation(kind="replace", id=current.id, document=tombstone, etag=current.etag)
            )
        else:
            self._add(Operation(kind="delete", id=current.id, etag=current.etag))

    def send(
        self,
        destination: str,
        body: bytes,
        *,
        properties: Mapping[str, Property] | None = None,
        session_id: str | None = None,
        content_type: str = "application/json",
    ) -> None:
        """Send a message to a queue or topic once the unit is committed, and only then.

        At least once: the MessageId is the same whenever it is sent. Table Storage holds 64 KiB of a
        message's body. Raises ConfigurationError when the consumer's Inbox has no outbox.
        """
        if self._message_ids is None:
            raise ConfigurationError("send() is for an Inbox made with an outbox")
        if not destination:
            raise ConfigurationError("send(): the destination is the name of a queue or topic")
        self._check_open()
        self._check_room(f"message to {destination!r}")
        ordinal = len(self.messages) + 1
        message = Message(
            destination=destination,
            message_id=self._message_ids(ordinal),
            ordinal=ordinal,
            body=body,
            properties=properties or {},
            session_id=session_id,
            content_type=content_type,
        )
        check_message(message)
        self.messages.append(message)

    def seal(self) -> None:
        """Take no more: the handler has ended."""
        self._sealed = True

    def _add(self, operation: Operation) -> None:
        self._check_open()
        _checked(operation.id)
        if operation.id in self._ids:
            raise ConfigurationError(
                f"{operation}: a unit of work writes each document once, and the marker's by mark()"
            )
        self._check_room(operation)
        self._ids.add(operation.id)
        self.operations.append(operation)

    def _check_room(self, what: object) -> None:
        if 1 + len(self.operations) + len(self.messages) >= MOST_OPERATIONS:
            raise MalformedContent(
                f"a transaction takes {MOST_OPERATIONS} operations with its marker and messages; {what} "
                "is one too many",
                reason="TooManyOperations",
            )

    def _check_open(self) -> None:
        if self._sealed:
            raise ConfigurationError("the handler has ended: its unit of work takes no more")


def _checked(id_: str) -> str:
    if id_ != storage_id(id_):
        raise ConfigurationError(f"{id_!r} is no id a store can hold; see storage_id()")
    return id_


def _unreserved[V](document: Mapping[str, V]) -> Mapping[str, V]:
    taken = [name for name in document if name.startswith(RESERVED)]
    if taken:
        raise ConfigurationError(f"properties named {RESERVED}* are reserved: {taken}")
    return document


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
