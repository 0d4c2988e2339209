"""An inbox's markers: where they lie, what is written into them, what is read out of them. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .documents import RESERVED, from_document, to_document
from .errors import ConfigurationError
from .evidence import changed_fields as changed_by_evidence
from .evidence import evidence_of
from .inbox_store import Operation, StoredDocument
from .keys import checked, presentable, storage_id
from .records import Delivery, Policy, Record, Status, Stored

type ChangedFields = Callable[[Mapping[str, Any], bytes], tuple[str, ...]]
"""Names the fields in which a recorded business document and a message's body differ."""


class Place(NamedTuple):
    """Where a marker lies."""

    partition: str
    id: str


class Markers:
    """The markers of one consumer; see `Inbox` for the two kinds."""

    def __init__(
        self,
        consumer: str,
        *,
        partition: Callable[[str], str] | None,
        entity_is_marker: bool,
        changed_fields: ChangedFields | None,
        policy: Policy,
    ) -> None:
        if changed_fields and not entity_is_marker:
            raise ConfigurationError(
                f"consumer {consumer}: changed_fields compares with the business entity; a plain marker "
                "has its own evidence"
            )
        self.consumer = consumer
        self.are_entities = entity_is_marker
        self._partition = partition or (lambda key: key)
        self._changed_fields = changed_fields
        self._policy = policy

    def place_of(self, key: str) -> Place:
        """Where the marker of a key lies; raises MissingKey or InvalidKey."""
        checked(key)
        partition = checked(self._partition(key), what="partition of the deduplication key")
        if self.are_entities:
            return Place(partition, storage_id(key))
        # no document of a unit of work, and no entity, has an id of this form
        return Place(partition, f"!{storage_id(self.consumer)}!{storage_id(key)}")

    def record(
        self,
        delivery: Delivery,
        owner: str,
        *,
        result: str | None,
        entity: Mapping[str, Any] | None,
        now: float,
    ) -> Record:
        """The record of a delivery's work, to be committed with it."""
        record = Record(
            consumer=self.consumer,
            key=delivery.key,
            status=Status.COMPLETED,
            owner=owner,
            fingerprint=delivery.fingerprint,
            result=result,
            started_at=now,
            finished_at=now,
            first_sequence_number=delivery.sequence_number,
            trace_parent=delivery.trace_parent,
        )
        if self.are_entities:
            return record.replaced(extra=entity or {})
        return record.replaced(
            expires_at=now + self._policy.retention,
            evidence=evidence_of(delivery.body) if self._policy.evidence else None,
        )

    def written(self, record: Record, place: Place, *, over: Stored | None) -> Operation:
        """The marker as operation 0; ``over`` is the expired one that it takes the place of."""
        return Operation(
            kind="replace" if over else "create",
            id=place.id,
            document=to_document(record, prefix=RESERVED),
            etag=over.etag if over else None,
        )

    def stored(self, found: StoredDocument, key: str) -> Stored:
        """The record in a document; raises ConfigurationError when it is another consumer's."""
        consumer = found.document.get(f"{RESERVED}consumer")
        if consumer and consumer != presentable(self.consumer):
            raise ConfigurationError(
                f"consumer {self.consumer}: the entity of key {presentable(key)!r} is the marker of "
                f"consumer {consumer}. One consumer's marker is the entity; the others need plain ones, "
                "or one would suppress the other"
            )
        record = from_document(
            found.document, consumer=str(consumer or ""), key=key, prefix=RESERVED
        )
        return Stored(record=record, etag=found.etag, age=found.age)

    def changed(self, record: Record, body: bytes) -> tuple[str, ...]:
        """The names of the fields in which a message differs from the recorded one, as far as known."""
        if self._changed_fields is not None:
            return self._changed_fields(record.extra, body)
        return changed_by_evidence(record.evidence, body)
