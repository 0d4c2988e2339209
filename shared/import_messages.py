"""What the queue of imports holds: requests for an import, and how far one has come."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from .idempotency import MalformedContent, joined
from .orders import Name, parsed
from .rows import Position

ERRORS: Final = ".errors.jsonl"
"""What is behind a blob's name in that of the blob with its bad rows."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an import's rows so far."""

    placed: int = 0
    duplicates: int = 0
    set_aside: int = 0

    @property
    def rows(self) -> int:
        return self.placed + self.duplicates + self.set_aside


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import has come. ``ended``: its last row is done; ``yields``: the next slice goes on."""

    position: Position = Position()
    tally: Tally = Tally()
    ended: bool = False
    yields: bool = False


class ImportMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for: the import of a blob, or its next slice.

    ``etag`` pins the content; a message without it is for what the blob holds when it is handled.
    ``run`` tells an import from an earlier one of the same content, which would be its duplicate.
    """

    blob: Annotated[str, Meta(min_length=1, max_length=1024)]
    etag: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    run: Name = "1"
    progress: Progress = Progress()

    @classmethod
    def of(cls, body: bytes) -> "ImportMessage":
        """Read a message; raises MalformedContent."""
        asked = parsed(body, cls)
        if asked.blob.endswith(ERRORS):
            raise MalformedContent(
                f"a blob whose name ends in {ERRORS} holds the bad rows of an import: name another",
                reason="ErrorsOfAnImport",
            )
        return msgspec.structs.replace(asked, etag=asked.etag and asked.etag.strip('"'))

    def key(self, message_id: str) -> str:
        """A slice is known by content and place; a request for whatever there is, by its message."""
        if self.etag is None:
            return joined("request", message_id)
        offset = str(self.progress.position.offset)
        return joined(self.blob, self.etag, self.run, offset)


def message_key(body: bytes, message_id: Any) -> str:
    """The deduplication key of a message; raises MalformedContent."""
    return ImportMessage.of(body).key(str(message_id))
