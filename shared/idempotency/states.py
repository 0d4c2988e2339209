"""Versioned states: what a version guard applies, how two stand to each other, where they are kept."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from .errors import ConfigurationError, MalformedContent
from .keys import checked

VERSION: Final = "version"
"""The property of a document that holds its version."""
MAX_VERSION: Final = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly."""

type Document = Mapping[str, Any]
type Change = Callable[[Document | None], Document]
"""Makes the new document from the one that is there, None when there is none. Pure: it may be called
again after a conflict."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a message carries, of the thing ``id``.

    ``version`` is a whole number from 0 to 2^53 - 1 that the *source* raises with each change; a time
    serves as whole microseconds. Text is not taken: how it sorts depends on who wrote it.
    ``document`` holds JSON values, and should hold what the id is made of. It may be a Change, for
    sources that are in order, such as sessions: what arrives out of order is stale and is then
    missing from what the changes add up to. Raises MalformedContent for any other version.

    ``version_in`` names the property that holds the version. Where several sources change one thing,
    each has its own version there, and changes the properties that are its own alone.
    """

    id: str
    version: int
    document: Document | Change
    version_in: str = VERSION

    def __post_init__(self) -> None:
        checked(self.id, what="id of a state")
        if isinstance(self.version, bool) or not isinstance(self.version, int):
            raise MalformedContent("a version is a whole number", reason="InvalidVersion")
        if not 0 <= self.version <= MAX_VERSION:
            raise MalformedContent("a version is from 0 to 2^53 - 1", reason="InvalidVersion")

    def following(self, current: Document | None) -> dict[str, Any]:
        """The document to be written where ``current`` is."""
        name = self.version_in
        allowed = [self.version]
        document = self.document
        if callable(document):
            if current and name in current:
                allowed.append(current[name])  # carried over with everything else
            document = document(current)
        if document.get(name, self.version) not in allowed:
            raise ConfigurationError(
                f"property {name} of a state's document is the state's version, or is left out"
            )
        return {**document, name: self.version}


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A document as the store holds it; ``etag`` fences the next write."""

    document: Document
    etag: str

    @property
    def version(self) -> int | None:
        """Its version; None in a document that was written without one."""
        return self.version_in(VERSION)

    def version_in(self, name: str) -> int | None:
        """The version in that property of its document."""
        version = self.document.get(name)
        if version is None or (isinstance(version, int) and not isinstance(version, bool)):
            return version
        raise ConfigurationError(
            f"property {name} of a guarded document is {type(version).__name__}, no whole number"
        )


class StateStore(Protocol):
    """Keeps documents by id; each method is ONE conditional write or ONE point read.

    Raises StoreUnavailable as a Store does: after that it is not known whether the write took effect,
    and it is issued again. A refused condition is a return value. Writes raise MalformedContent when
    the service cannot hold the document.
    """

    @property
    def name(self) -> str:
        """A short name for metrics and logs."""
        ...

    async def read(self, id_: str) -> StoredState | None:
        """Strongly consistent with every write answered before; None when there is none."""
        ...

    async def create(self, id_: str, document: Document) -> bool:
        """Write the document if there is none; False when there is one."""
        ...

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        """Replace the whole document if it is still the one ``etag`` names; gone counts as changed."""
        ...

    async def close(self) -> None: ...


class Standing(StrEnum):
    """How a state stands to what is there."""

    NEWER = "newer"
    EQUAL = "equal"
    OLDER = "older"


def standing(version: int, current: int | None) -> Standing:
    """Pure; ``current`` None, nothing or a document without a version, is older than any state."""
    if current is None or version > current:
        return Standing.NEWER
    return Standing.EQUAL if version == current else Standing.OLDER
