"""The contract that every store of documents in transactions has to keep."""
# ruff: noqa: S101 - an assertion is what a test does

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from ..documents import RESERVED, from_document, to_document
from ..errors import IdempotencyError, MalformedContent
from ..inbox_store import MOST_OPERATIONS, InboxStore, Operation, Refused
from ..keys import storage_id
from ..records import Status
from .records import HOSTILE_KEYS, a_record


class InboxContract:
    """What every `InboxStore` promises."""

    has_limits = True
    """Whether there is a size that the service cannot hold."""
    increments = True
    """Whether a patch can add to a field; a store that cannot refuses before it sends anything."""

    async def test_the_documents_of_a_transaction_are_written_together(
        self, inbox: InboxStore
    ) -> None:
        partition = uuid.uuid4().hex
        document = {
            "total": "1.50",
            "lines": [{"sku": "a"}],
            "count": 2,
            "big": 2**40,
            "open": True,
        }
        operations = (_create("order", document), _upsert("line-1"), _upsert("line-2"))
        assert await inbox.commit(partition, operations) is None
        found = await inbox.read(partition, "order")
        assert found is not None
        assert document.items() <= found.document.items()
        assert 0.0 <= found.age < 10.0
        assert await inbox.read(partition, "line-2") is not None

    async def test_what_is_not_there_is_none(self, inbox: InboxStore) -> None:
        assert await inbox.read(uuid.uuid4().hex, "order") is None

    async def test_a_record_is_read_back_from_the_reserved_properties_of_a_document(
        self, inbox: InboxStore
    ) -> None:
        record = a_record(status=Status.COMPLETED, result='"r"', extra={"total": "1.50"})
        marker = _create("order", to_document(record, prefix=RESERVED))
        await inbox.commit(record.key, (marker,))
        found = await inbox.read(record.key, "order")
        assert found is not None
        read = from_document(
            found.document, consumer=record.consumer, key=record.key, prefix=RESERVED
        )
        assert read.extra["total"] == "1.50"
        assert read.replaced(extra={}) == record.replaced(extra={})

    async def test_partitions_are_apart(self, inbox: InboxStore) -> None:
        one, other = uuid.uuid4().hex, uuid.uuid4().hex
        await inbox.commit(one, (_create("order"),))
        assert await inbox.read(other, "order") is None
        assert await inbox.commit(other, (_create("order"),)) is None

    async def test_a_refused_first_operation_writes_nothing(self, inbox: InboxStore) -> None:
        partition = uuid.uuid4().hex
        await inbox.commit(partition, (_create("order", {"total": "1"}),))
        first = await inbox.read(partition, "order")
        refused = await inbox.commit(
            partition, (_create("order", {"total": "2"}), _create("line-1"))
        )
        assert refused == Refused(index=0, status=409)
        assert await inbox.read(partition, "line-1") is None
        second = await inbox.read(partition, "order")
        assert first is not None
        assert second is not None
        assert (second.etag, second.document["total"]) == (first.etag, "1")

    async def test_of_twenty_concurrent_commits_one_succeeds(self, inbox: InboxStore) -> None:
        await inbox.commit(uuid.uuid4().hex, (_create("order"),))  # what must be created is there
        partition = uuid.uuid4().hex
        answers = await asyncio.gather(
            *(inbox.commit(partition, (_create("order"), _create(f"by-{n}"))) for n in range(20))
        )
        assert answers.count(None) == 1
        assert answers.count(Refused(index=0, status=409)) == 19

    async def test_a_later_refused_operation_is_named_and_undoes_what_came_before(
        self, inbox: InboxStore
    ) -> None:
        """In one transaction after a create, an update, a patch and a delete that would succeed."""
        partition, stale, etags = await self._partition_of_three(inbox)
        for refused, status in (
            (_create("kept"), 409),
            (Operation(kind="replace", id="kept", document={}, etag=stale), 412),
            (Operation(kind="delete", id="kept", etag=stale), 412),
            (Operation(kind="patch", id="kept", document={"a": 1}, etag=stale), 412),
            (Operation(kind="replace", id="missing", document={}, etag=stale), 404),
            (Operation(kind="delete", id="missing"), 404),
            (Operation(kind="patch", id="missing", document={"a": 1}), 404),
        ):
            operations = (
                _create("new"),
                _upsert("newer"),
                Operation(kind="replace", id="one", document={"a": "b"}, etag=etags["one"]),
                Operation(kind="patch", id="two", document={"kind": "patched"}),
                Operation(kind="delete", id="three", etag=etags["three"]),
                refused,
                _create("never"),
            )
            answer = await inbox.commit(partition, operations)
            assert answer == Refused(index=5, status=status), str(refused)
            assert await inbox.read(partition, "new") is None
            assert await inbox.read(partition, "newer") is None
            for id_ in ("one", "two", "three"):
                found = await inbox.read(partition, id_)
                assert found is not None
                assert (found.document["kind"], found.etag) == ("line", etags[id_])

    async def _partition_of_three(self, inbox: InboxStore) -> tuple[str, str, dict[str, str]]:
        """A partition, an ETag that is stale in it, and those of its documents one, two and three."""
        partition = uuid.uuid4().hex
        ids = ("one", "two", "three")
        await inbox.commit(partition, (_create("kept"), *(_create(id_) for id_ in ids)))
        old = await inbox.read(partition, "kept")
        assert old is not None
        assert await inbox.commit(partition, (_upsert("kept", {"new": "content"}),)) is None
        etags = {}
        for id_ in ids:
            found = await inbox.read(partition, id_)
            assert found is not None
            etags[id_] = found.etag
        return partition, old.etag, etags

    async def test_a_replace_leaves_nothing_of_the_old_document_a_patch_leaves_the_rest(
        self, inbox: InboxStore
    ) -> None:
        partition = uuid.uuid4().hex
        old = {"status": "placed", "lines": [{"sku": "a"}], "note": "old"}
        await inbox.commit(partition, (_create("one", old), _create("two", old)))
        one = await inbox.read(partition, "one")
        two = await inbox.read(partition, "two")
        assert one is not None
        assert two is not None
        new = {"status": "paid", "share": 0.5, "open": False}
        assert (
            await inbox.commit(
                partition,
                (
                    Operation(kind="replace", id="one", document=new, etag=one.etag),
                    Operation(kind="patch", id="two", document=new, etag=two.etag),
                ),
            )
            is None
        )
        one = await inbox.read(partition, "one")
        two = await inbox.read(partition, "two")
        assert one is not None
        assert two is not None
        assert new.items() <= one.document.items()
        assert not {"lines", "note"} & one.document.keys()
        assert {**old, **new}.items() <= two.document.items()

    async def test_an_increment_adds_or_is_refused_before_anything_is_sent(
        self, inbox: InboxStore
    ) -> None:
        partition = uuid.uuid4().hex
        await inbox.commit(partition, (_create("stock", {"left": 5}),))
        patch = Operation(kind="patch", id="stock", increment={"left": -2})
        told = await self._refusal(inbox, partition, (_create("line-1"), patch))
        assert told is None if self.increments else "patch of document 'stock'" in str(told)
        found = await inbox.read(partition, "stock")
        assert found is not None
        assert found.document["left"] == (3 if self.increments else 5)
        assert (await inbox.read(partition, "line-1") is not None) == self.increments

    async def test_a_delete_without_condition_deletes_whatever_is_there(
        self, inbox: InboxStore
    ) -> None:
        partition = uuid.uuid4().hex
        await inbox.commit(partition, (_create("one"), _create("two")))
        deletes = (Operation(kind="delete", id="one"), Operation(kind="delete", id="two"))
        assert await inbox.commit(partition, deletes) is None
        assert await inbox.read(partition, "one") is None
        assert await inbox.commit(partition, deletes) == Refused(index=0, status=404)

    async def test_a_transaction_takes_a_hundred_operations(self, inbox: InboxStore) -> None:
        partition = uuid.uuid4().hex
        operations = tuple(_create(f"line-{n}") for n in range(MOST_OPERATIONS))
        assert await inbox.commit(partition, operations) is None
        assert await inbox.read(partition, f"line-{MOST_OPERATIONS - 1}") is not None

    async def test_hostile_keys_are_partitions_of_their_own(self, inbox: InboxStore) -> None:
        run = uuid.uuid4().hex[:8]
        keys = [run + key[: 1024 - len(run)] for key in HOSTILE_KEYS]
        keys[-1] = keys[-1][:-1] + "K"  # cut off above
        for number, key in enumerate(keys):
            marker = _create(storage_id(key), {"number": number})
            assert await inbox.commit(key, (marker, _create("line-1"))) is None, ascii(key)
        for number, key in enumerate(keys):
            found = await inbox.read(key, storage_id(key))
            assert found is not None, ascii(key)
            assert found.document["number"] == number

    async def test_what_cannot_be_kept_is_refused_before_it_is_sent_naming_the_operation(
        self, inbox: InboxStore
    ) -> None:
        if not self.has_limits:
            return
        partition = uuid.uuid4().hex
        huge = _create("huge", {"text": "x" * 5_000_000})
        many = tuple(
            _create(f"line-{n}", {f"text{i}": "x" * 30_000 for i in range(8)}) for n in range(20)
        )
        for operations, names in (
            ((_create("small"), huge), ("huge",)),
            (many, ("line-8", "line-17")),
        ):
            told = await self._refusal(inbox, partition, operations)
            assert isinstance(told, MalformedContent)
            assert told.reason == "ContentTooLarge"
            assert any(f"create of document '{name}'" in str(told) for name in names), str(told)
            assert await inbox.read(partition, operations[0].id) is None

    async def _refusal(
        self, inbox: InboxStore, partition: str, operations: tuple[Operation, ...]
    ) -> IdempotencyError | None:
        try:
            assert await inbox.commit(partition, operations) is None
        except IdempotencyError as error:
            return error
        return None


def _create(id_: str, document: Mapping[str, Any] | None = None) -> Operation:
    return Operation(kind="create", id=id_, document=document or {"kind": "line"})


def _upsert(id_: str, document: Mapping[str, Any] | None = None) -> Operation:
    return Operation(kind="upsert", id=id_, document=document or {"kind": "line"})
