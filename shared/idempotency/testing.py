"""For tests: a clock that is moved by hand, and the contracts that every store has to keep.

To prove a store of your own, subclass the contract and give it a ``store`` fixture:

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            ...

The contracts' tests are coroutines: run them with pytest-asyncio in its auto mode.
"""
# ruff: noqa: S101 - an assertion is what a test does

import asyncio
import heapq
import itertools
import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from .documents import RESERVED, from_document, to_document
from .errors import IdempotencyError, MalformedContent
from .inbox_store import MOST_OPERATIONS, InboxStore, Operation, Refused
from .keys import storage_id
from .records import SCHEMA, Record, Status, Step, Stored
from .store import Store

HOSTILE_KEYS: Final = (
    "plain",
    "a/b/../c",
    "a\\b",
    "what?",
    "100%",
    "%2F",
    "#1",
    "it's; DROP TABLE --",
    '{"quoted":"json"}',
    "tab\tand\nnew line",
    "\x00\x01\x1f\x7f\x85",
    " leading and trailing ",
    "trailing",
    "trailing ",
    "Case",
    "case",
    "caf\u00e9",
    "cafe\u0301",
    "\U0001f600",
    "\ud83d",
    "\ud83d\\udE00",
    "!" + "0" * 64,
    "~",
    ".",
    "..",
    "\u202eright to left",
    "k" * 1024,
    "k" * 1023 + "K",
)
"""Keys that are all different, and that services, addresses and encodings are prone to mix up."""


class FakeClock:
    """Time that passes only when it is told to; it wakes sleepers in the order of their time.

    ``skew`` is by how many seconds the wall clock is wrong.
    """

    def __init__(self, *, start: float = 1_700_000_000.0, skew: float = 0.0) -> None:
        self._start = start + skew
        self._passed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._start + self._passed

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        until = self._passed + seconds
        await _settled()
        while (due := self._next()) is not None and due <= until:
            await self._wake(due)
        self._passed = until
        await _settled()

    async def run[T](self, work: Awaitable[T]) -> T:
        """The outcome of ``work``, letting as much time pass as it needs.

        Raises RuntimeError when it waits for something that no time brings.
        """
        task = asyncio.ensure_future(work)
        while True:
            await _settled()
            if task.done():
                return task.result()
            due = self._next()
            if due is not None:
                await self._wake(due)
                continue
            await asyncio.wait({task}, timeout=2.0)  # a thread, at the most
            if not task.done() and self._next() is None:
                task.cancel()
                raise RuntimeError("nothing is left to wait for, and the work is not done")

    def _next(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def _wake(self, due: float) -> None:
        self._passed = max(self._passed, due)
        _, _, sleeper = heapq.heappop(self._sleepers)
        sleeper.set_result(None)
        await _settled()


async def _settled() -> None:
    """Let every task run until it waits for something."""
    for _ in range(40):
        await asyncio.sleep(0)


def a_record(key: str | None = None, **fields: Any) -> Record:
    """A record in progress, of a key of its own."""
    return Record(
        consumer="contract",
        key=key or uuid.uuid4().hex,
        status=Status.IN_PROGRESS,
        owner=uuid.uuid4().hex,
        lease=30.0,
        started_at=1_700_000_000.25,
    ).replaced(**fields)


class StoreContract:
    """What every `Store` promises."""

    async def pass_time(self, seconds: float) -> None:
        """Let the store's clock go on."""
        await asyncio.sleep(seconds)

    async def _inserted(self, store: Store, record: Record) -> Stored:
        stored = await store.insert(record)
        assert stored is not None
        return stored

    async def test_what_is_inserted_is_read_back_field_by_field(self, store: Store) -> None:
        record = a_record(
            attempt=3,
            fingerprint="json1:00ff",
            settle=12.5,
            steps=(Step(name="charge", begun_at=1.0, deadline=2.0, done=True, result='{"a":1}'),),
            result='"\u00e9\U0001f600"',
            failure_reason="Refused",
            failure_description="for a reason",
            finished_at=1_700_000_001.0,
            expires_at=1_700_000_002.5,
            first_sequence_number=2**53 + 1,
            trace_parent="00-11-22-01",
            evidence='{"salt":"s","fields":{}}',
        )
        inserted = await self._inserted(store, record)
        found = await store.read(record.consumer, record.key)
        assert found is not None
        assert found.record == record
        assert found.etag == inserted.etag

    async def test_a_kept_null_differs_from_no_result(self, store: Store) -> None:
        with_null, without = a_record(result="null"), a_record(result=None)
        for record in (with_null, without):
            await self._inserted(store, record)
            found = await store.read(record.consumer, record.key)
            assert found is not None
            assert found.record.result == record.result

    async def test_what_is_not_there_is_none(self, store: Store) -> None:
        assert await store.read("contract", uuid.uuid4().hex) is None

    async def test_of_fifty_concurrent_inserts_one_succeeds(self, store: Store) -> None:
        key = uuid.uuid4().hex
        await self._inserted(store, a_record())  # whatever has to be created is there
        records = [a_record(key) for _ in range(50)]
        answers = await asyncio.gather(*(store.insert(record) for record in records))
        winners = [answer for answer in answers if answer is not None]
        found = await store.read("contract", key)
        assert len(winners) == 1
        assert found is not None
        assert found.record.owner == winners[0].record.owner

    async def test_of_twenty_concurrent_replaces_one_succeeds(self, store: Store) -> None:
        stored = await self._inserted(store, a_record())
        contenders = [stored.record.replaced(owner=uuid.uuid4().hex) for _ in range(20)]
        answers = await asyncio.gather(*(store.replace(r, stored.etag) for r in contenders))
        assert sum(answer is not None for answer in answers) == 1

    async def test_a_stale_etag_neither_replaces_nor_deletes(self, store: Store) -> None:
        first = await self._inserted(store, a_record())
        second = await store.replace(first.record.replaced(attempt=2), first.etag)
        assert second is not None
        assert await store.replace(first.record.replaced(attempt=9), first.etag) is None
        assert await store.delete(first.record, first.etag) is False
        found = await store.read(first.record.consumer, first.record.key)
        assert found is not None
        assert found.record.attempt == 2
        assert found.etag == second.etag

    async def test_a_write_of_the_same_content_still_changes_the_etag(self, store: Store) -> None:
        first = await self._inserted(store, a_record())
        second = await store.replace(first.record, first.etag)
        assert second is not None
        assert second.etag != first.etag

    async def test_what_is_gone_is_refused(self, store: Store) -> None:
        stored = await self._inserted(store, a_record())
        assert await store.delete(stored.record, stored.etag) is True
        assert await store.delete(stored.record, stored.etag) is False
        assert await store.replace(stored.record, stored.etag) is None
        assert await store.read(stored.record.consumer, stored.record.key) is None
        assert await store.insert(stored.record) is not None

    async def test_an_old_etag_does_not_fit_a_record_that_was_inserted_anew(
        self, store: Store
    ) -> None:
        old = await self._inserted(store, a_record())
        await store.delete(old.record, old.etag)
        await self.pass_time(0.002)
        await self._inserted(store, old.record.replaced(owner="another"))
        assert await store.delete(old.record, old.etag) is False
        assert await store.replace(old.record, old.etag) is None

    async def test_fields_of_a_newer_release_survive_a_replace(self, store: Store) -> None:
        extra = {"colour": "blue", "weight": 12, "big": 2**40, "nested": {"a": [1, "two"]}}
        await self._inserted(store, record := a_record(schema=SCHEMA + 1, extra=extra))
        found = await store.read(record.consumer, record.key)
        assert found is not None
        await store.replace(found.record.replaced(attempt=2), found.etag)
        again = await store.read(record.consumer, record.key)
        assert again is not None
        assert again.record.extra == extra
        assert again.record.schema == SCHEMA + 1

    async def test_a_replace_leaves_nothing_of_the_old_record_behind(self, store: Store) -> None:
        stored = await self._inserted(
            store, a_record(failure_reason="Old", evidence="old", extra={"old": "old"})
        )
        new = a_record(stored.record.key)
        await store.replace(new, stored.etag)
        found = await store.read(new.consumer, new.key)
        assert found is not None
        assert found.record == new

    async def test_hostile_keys_are_records_of_their_own(self, store: Store) -> None:
        run = uuid.uuid4().hex[:8]
        for key in HOSTILE_KEYS:
            assert await store.insert(a_record(key, consumer=run)) is not None, ascii(key)
        for key in HOSTILE_KEYS:
            found = await store.read(run, key)
            assert found is not None, ascii(key)
            assert found.record.key == key
            replaced = await store.replace(found.record.replaced(attempt=2), found.etag)
            assert replaced is not None, ascii(key)
            assert await store.delete(replaced.record, replaced.etag), ascii(key)

    async def test_each_consumer_has_a_record_of_its_own(self, store: Store) -> None:
        key, a, b = uuid.uuid4().hex, uuid.uuid4().hex, "b/#?% " + uuid.uuid4().hex
        await self._inserted(store, a_record(key, consumer=a))
        await self._inserted(store, a_record(key, consumer=b))
        assert await store.insert(a_record(key, consumer=a)) is None

    async def test_age_is_the_time_since_the_last_write(self, store: Store) -> None:
        stored = await self._inserted(store, a_record())
        await self.pass_time(2.2)
        old = await store.read(stored.record.consumer, stored.record.key)
        await store.replace(stored.record, stored.etag)
        renewed = await store.read(stored.record.consumer, stored.record.key)
        assert old is not None
        assert renewed is not None
        assert 1.0 <= old.age < 10.0  # clocks that count whole seconds are up to one behind
        assert 0.0 <= renewed.age <= 1.0


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
