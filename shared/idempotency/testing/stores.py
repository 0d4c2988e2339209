"""The contract that every store of records has to keep."""
# ruff: noqa: S101 - an assertion is what a test does

import asyncio
import uuid

from ..records import SCHEMA, Record, Step, Stored
from ..store import Store
from .records import HOSTILE_KEYS, a_record


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
