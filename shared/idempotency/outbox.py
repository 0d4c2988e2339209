"""The outbox: messages that are committed with the data they tell of, and sent afterwards.

A message is kept as a pending document beside the marker, in the same transaction, and is taken away
once the broker has it. What is promised: at least once, with an ordinal; not exactly once, and not in
order across crashes. A MessageId is fixed at the commit, so that a message that is sent again is
recognised by the broker's duplicate detection and by the next consumer.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from .documents import RESERVED
from .errors import MalformedContent
from .inbox_store import InboxStore, Operation, StoredDocument

DUE_AT: Final = f"{RESERVED}due_at"
"""The property that only pending documents have: from when on a sweeper may send the message."""
SENDS: Final = f"{RESERVED}sends"
_PENDING: Final = f"{RESERVED}pending"
_BODY: Final = f"{RESERVED}body"
_LARGEST_MESSAGE = 192 * 1024
_LONGEST_SESSION_ID = 128

type Property = str | int | float | bool


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way to ``destination``, a queue or topic.

    ``ordinal`` is its place among the messages of its unit of work, from 1. ``enqueued_at`` is when it
    was committed, in seconds since the epoch; ``resends`` how often it may have been sent before.
    """

    destination: str
    message_id: str
    ordinal: int
    body: bytes
    properties: Mapping[str, Property] = {}
    session_id: str | None = None
    content_type: str = "application/json"
    trace_parent: str | None = None
    enqueued_at: float = 0.0
    resends: int = 0

    def __repr__(self) -> str:
        return f"Message({self.message_id} to {self.destination}, body of {len(self.body)} bytes)"


def check_message(message: Message) -> None:
    """Raise MalformedContent for what no broker would take, before it is committed and can never be sent."""
    what = f"message to {message.destination!r}"
    try:
        msgspec.json.encode([message.properties, message.session_id, message.destination])
    except UnicodeEncodeError as error:
        raise MalformedContent(f"{what}: it holds half a surrogate pair") from error
    if len(message.session_id or "") > _LONGEST_SESSION_ID:
        raise MalformedContent(
            f"{what}: its session id has more than {_LONGEST_SESSION_ID} characters"
        )
    size = len(message.body) + sum(
        len(name) + len(str(value)) for name, value in message.properties.items()
    )
    if size > _LARGEST_MESSAGE:
        raise MalformedContent(
            f"{what}: it has {size} bytes; a Service Bus of the standard tier takes 256 KB with all that "
            f"it adds, of which {_LARGEST_MESSAGE} are left",
            reason="ContentTooLarge",
        )


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that one commit left to be sent, all or the rest of them.

    ``due_at``: from when on a sweeper may take it. ``sends``: how often one has. ``announced_at`` is
    when the commit was about to be sent. Instants are in seconds since the epoch, by the clocks of
    workers: they pace, nothing is ever decided by a difference of seconds. ``etags`` are those of the
    pending documents, where the store claims by them.
    """

    partition: str
    owner: str
    messages: tuple[Message, ...]
    due_at: float
    announced_at: float
    sends: int = 0
    etags: tuple[str, ...] = ()

    def pending(self) -> tuple[Operation, ...]:
        """Keep every message, as part of a transaction."""
        return tuple(
            Operation(kind="create", id=pending_id(self.owner, m.ordinal), document=self._kept(m))
            for m in self.messages
        )

    def _kept(self, message: Message) -> dict[str, Any]:
        try:
            body, encoding = message.body.decode(), "text"
        except UnicodeDecodeError:
            body, encoding = base64.b64encode(message.body).decode(), "base64"
        kept = _Kept(
            owner=self.owner,
            encoding=encoding,
            message=msgspec.structs.replace(message, body=b"", resends=0),
        )
        text = msgspec.json.encode(kept).decode()
        return {_PENDING: text, _BODY: body, DUE_AT: self.due_at, SENDS: self.sends}


class _Kept(msgspec.Struct, frozen=True):
    owner: str
    encoding: str
    message: Message


_kept = msgspec.json.Decoder(_Kept)

type Send = Callable[[Message], Awaitable[None]]
"""Hands one message to the broker, which has it for good when this returns.

Raises TransientFailure when it is not known whether the broker has it. Safe for concurrent use.
"""


class OutboxStore(InboxStore, Protocol):
    """An InboxStore whose pending documents can be found, whatever partition they are in.

    Each method is one round trip, but ``due``. Raises StoreUnavailable as an InboxStore does.
    """

    @property
    def announces(self) -> bool:
        """Whether the store cannot search all partitions: it then keeps a pointer to each parcel,
        written before the commit in a partition that is known. Otherwise nobody calls ``announce``
        and ``forget``.
        """
        ...

    async def announce(self, parcel: Parcel) -> None:
        """Write the pointer; writing it twice is as good as once."""
        ...

    async def forget(self, parcel: Parcel) -> None:
        """Delete the pointer, if it is still there."""
        ...

    async def due(self, now: float, limit: int) -> tuple[Parcel, ...]:
        """Up to ``limit`` parcels that were due at ``now``, long-due ones first where it can be told.

        A pointer without pending documents gives a parcel without messages: its commit has not been
        done, or its messages have been sent meanwhile.
        """
        ...

    async def postpone(self, parcel: Parcel, until: float) -> Parcel | None:
        """Claim the parcel by making it due later, in one conditional write; None when another has."""
        ...


def message_id(consumer: str, key: str, incarnation: str, ordinal: int) -> str:
    """64 hexadecimal digits: different for every message, the same whenever it is sent.

    ``incarnation`` is the owner of the attempt that is committed: a key that is used again, after its
    marker has expired or a person has released it, gives messages of their own.
    """
    parts = (consumer, key, incarnation, str(ordinal))
    joined = "".join(f"{len(part)}:{part};" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


def pending_id(owner: str, ordinal: int) -> str:
    """The id of a pending document; no business document and no marker has one of this form."""
    return f"{pending_ids(owner)[0]}{ordinal:03}"


def pending_ids(owner: str) -> tuple[str, str]:
    """What the ids of an owner's pending documents start with, and the first text after all of them."""
    return f"!=pending={owner}=", f"!=pending={owner}>"


def pending_message(document: Mapping[str, Any]) -> tuple[str, Message]:
    """The owner and the message that a pending document keeps."""
    kept = _kept.decode(document[_PENDING])
    body = str(document[_BODY])
    decoded = base64.b64decode(body) if kept.encoding == "base64" else body.encode()
    return kept.owner, msgspec.structs.replace(kept.message, body=decoded)


def parcels_in(
    documents: Iterable[tuple[str, StoredDocument]], *, limit: int
) -> tuple[Parcel, ...]:
    """Pending documents, with their partitions, as parcels: those of one commit are one."""
    found: dict[tuple[str, str], list[tuple[Message, StoredDocument]]] = {}
    for partition, stored in documents:
        owner, message = pending_message(stored.document)
        found.setdefault((partition, owner), []).append((message, stored))
    parcels = []
    for (partition, owner), kept in found.items():
        kept.sort(key=lambda each: each[0].ordinal)
        first = kept[0][1].document
        parcels.append(
            Parcel(
                partition=partition,
                owner=owner,
                messages=tuple(message for message, _ in kept),
                due_at=float(first[DUE_AT]),
                announced_at=kept[0][0].enqueued_at,
                sends=int(first[SENDS]),
                etags=tuple(stored.etag for _, stored in kept),
            )
        )
    return tuple(sorted(parcels, key=lambda parcel: parcel.due_at)[:limit])


def postponed(parcel: Parcel, until: float) -> tuple[Parcel, tuple[Operation, ...]]:
    """A parcel claimed through its pending documents, and the transaction that claims it."""
    claims = tuple(
        Operation(
            kind="patch",
            id=pending_id(parcel.owner, message.ordinal),
            document={DUE_AT: until, SENDS: parcel.sends + 1},
            etag=etag,
        )
        for message, etag in zip(parcel.messages, parcel.etags, strict=True)
    )
    claimed = msgspec.structs.replace(parcel, due_at=until, sends=parcel.sends + 1, etags=())
    return claimed, claims
