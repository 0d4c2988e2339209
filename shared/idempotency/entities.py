"""Business entities that an inbox made, as states: a version guard updates them, and they stay markers."""

from .documents import RESERVED, business_of
from .errors import ConfigurationError
from .inbox_store import InboxStore, Operation
from .keys import storage_id
from .states import Document, StoredState


class EntityStates:
    """A store of states on the entities of an Inbox with ``entity_is_marker`` and no ``partition``.

    An entity's id is its deduplication key. States of it are Changes: the document that a Change is
    given has the reserved properties, and the one it gives back keeps them, or the write is refused.
    Only the inbox makes entities: a Change of None raises, a TransientFailure where one may yet come.
    """

    def __init__(self, store: InboxStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    async def read(self, id_: str) -> StoredState | None:
        found = await self._store.read(id_, storage_id(id_))
        if found is None or business_of(found.document) is None:
            return None
        return StoredState(document=found.document, etag=found.etag)

    async def create(self, id_: str, document: Document) -> bool:
        raise ConfigurationError("an entity that is a marker is made by its inbox alone")

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        kept = {f"{RESERVED}{name}" for name in ("status", "owner", "consumer")}
        if missing := sorted(kept - document.keys()):
            raise ConfigurationError(
                f"an update of the entity {id_!r} lost {missing}: without them its duplicates run again"
            )
        replaced = Operation(kind="replace", id=storage_id(id_), document=document, etag=etag)
        return await self._store.commit(id_, (replaced,)) is None

    async def close(self) -> None:
        await self._store.close()
