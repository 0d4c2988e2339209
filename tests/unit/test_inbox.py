"""The inbox form: marker and business writes together, or neither."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shared.idempotency import (
    BusinessConflict,
    ConfigurationError,
    DeadlineExceeded,
    Inbox,
    MissingKey,
    Outcome,
    PermanentFailure,
    Policy,
    ResultCodec,
    current_attempt,
    current_unit,
)
from shared.idempotency.documents import business_of
from shared.idempotency.inbox_store import Operation
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, KEY, OTHER, Bench, a_delivery
from tests.unit.test_round_trips import InboxBench


def changed(document: Mapping[str, Any], body: bytes) -> tuple[str, ...]:
    return ("total",)


async def test_the_business_entity_is_its_own_marker() -> None:
    bench = InboxBench()
    await bench.consumer.handle(a_delivery(sequence_number=4), bench.work, CODEC)
    found = await bench.store.read(KEY, KEY)
    assert found is not None
    assert business_of(found.document) == {"status": "placed"}
    assert found.document["idempotency_consumer"] == "process_order"
    assert set(bench.store.documents()) == {(KEY, KEY), (KEY, "line-1")}


async def test_a_later_change_of_the_entity_leaves_a_redelivery_a_duplicate() -> None:
    """Its status is no part of the fingerprint, which is never written again."""
    bench = InboxBench()
    await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    patch = Operation(kind="patch", id=KEY, document={"status": "shipped"})
    assert await bench.store.commit(KEY, (patch,)) is None
    again = await bench.consumer.handle(a_delivery(redelivered=True), bench.work, CODEC)
    assert again.outcome is Outcome.DUPLICATE


async def test_other_content_is_a_mismatch_with_the_fields_of_the_entity_itself() -> None:
    inbox = Inbox("process_order", MemoryInbox(), entity_is_marker=True, changed_fields=changed)
    bench = InboxBench()
    await inbox.handle(a_delivery(), bench.work, CODEC)
    handled = await inbox.handle(a_delivery(fingerprint=OTHER), bench.work, CODEC)
    assert handled.outcome is Outcome.MISMATCH
    assert "changed: total" in handled.description


async def test_a_permanent_failure_writes_nothing() -> None:
    bench = InboxBench()
    bench.error = PermanentFailure("OutOfStock", "none left")
    handled = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    assert (handled.outcome, handled.reason) == (Outcome.FAILED, "OutOfStock")
    assert bench.store.documents() == {}


async def test_a_refusal_of_what_an_earlier_delivery_did_is_a_duplicate() -> None:
    """On a first delivery the marker is not looked at before the handler runs."""
    store = MemoryInbox()

    async def fulfil() -> str:
        order = await current_unit().read("order")
        if order is not None:
            raise PermanentFailure("AlreadyFulfilled", "it was fulfilled before")
        current_unit().create("order", {"status": "fulfilled"})
        return "fulfilled"

    async def delivered(key: str) -> Outcome:
        inbox = Inbox("fulfil_order", store, partition=lambda key: "o-1")  # it remembers nothing
        return (await inbox.handle(a_delivery(key=key), fulfil, CODEC)).outcome

    assert await delivered("request-1") is Outcome.PROCESSED
    assert await delivered("request-1") is Outcome.DUPLICATE
    assert await delivered("request-2") is Outcome.FAILED


async def test_a_refused_document_is_a_business_conflict_not_a_duplicate() -> None:
    bench = InboxBench()

    async def work() -> str:
        current_unit().mark({"status": "placed"})
        current_unit().create("line-1", {})
        current_unit().patch("stock", {"left": 4})
        return "never"

    with pytest.raises(BusinessConflict, match="patch of document 'stock' was refused") as refused:
        await bench.consumer.handle(a_delivery(), work, CODEC)
    assert (refused.value.operation, refused.value.status) == (1, 404)
    assert bench.store.documents() == {}


async def test_a_document_that_others_keep_changing_is_a_conflict_after_a_few_runs() -> None:
    bench = InboxBench()
    runs = 0

    async def work() -> str:
        nonlocal runs
        runs += 1
        current_unit().mark({"status": "placed"})
        current_unit().patch("stock", {"left": 4}, etag="another")
        return "never"

    assert await bench.store.commit("o-1", (Operation(kind="create", id="stock"),)) is None
    with pytest.raises(BusinessConflict, match=r"patch of document 'stock'.*\(412\)"):
        await bench.consumer.handle(a_delivery(key="o-1"), work, CODEC)
    assert runs == 4


async def test_two_that_read_the_same_document_both_have_their_effect_in_it() -> None:
    bench = InboxBench()
    inbox = Inbox("points", bench.store, partition=lambda key: "account", clock=bench.clock)
    both_have_read = asyncio.Barrier(2)
    first = {"e-1", "e-2"}

    async def work() -> str:
        account = await current_unit().read("account")
        if (key := current_attempt().key) in first:
            first.discard(key)
            await both_have_read.wait()
        if account is None:
            current_unit().create("account", {"points": 1})
        else:
            current_unit().replace(account, {"points": account.document["points"] + 1})
        return "credited"

    deliveries = [a_delivery(key=key) for key in ("e-1", "e-2")]
    told = await asyncio.gather(*(inbox.handle(each, work, CODEC) for each in deliveries))
    assert [each.outcome for each in told] == [Outcome.PROCESSED] * 2
    assert bench.store.documents()["account", "account"]["points"] == 2


async def test_the_deadline_ends_a_hung_handler_and_nothing_is_written() -> None:
    bench = InboxBench(deadline=20.0)

    async def hung() -> str:
        current_unit().create("line-1", {})
        await bench.clock.sleep(1000)
        return "never"

    with pytest.raises(DeadlineExceeded, match="nothing was written"):
        await bench.clock.run(bench.consumer.handle(a_delivery(), hung, CODEC))
    assert bench.clock.monotonic() == 20.0
    assert bench.store.documents() == {}


async def test_a_cancelled_delivery_cancels_its_handler_and_writes_nothing() -> None:
    bench = InboxBench()
    cancelled = asyncio.Event()

    async def slow() -> str:
        try:
            await bench.clock.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    running = asyncio.create_task(bench.consumer.handle(a_delivery(), slow, CODEC))
    await bench.clock.advance(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.clock.run(running)
    assert cancelled.is_set()
    assert bench.store.documents() == {}


async def test_a_result_too_large_is_not_kept_but_the_work_is_committed() -> None:
    bench = InboxBench(max_result_bytes=3)
    first = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    again = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    assert (first.outcome, first.result, first.result_kept) == (Outcome.PROCESSED, None, False)
    assert (again.outcome, again.result_kept) == (Outcome.DUPLICATE, False)


async def test_a_falsy_result_is_a_result() -> None:
    bench = InboxBench()

    async def work() -> int:
        current_unit().mark({})
        return 0

    codec: ResultCodec[int] = ResultCodec(int)
    first = await bench.consumer.handle(a_delivery(), work, codec)
    again = await bench.consumer.handle(a_delivery(), work, codec)
    assert (first.result, again.result, again.result_kept) == (0, 0, True)


async def test_a_delivery_without_a_key_never_runs() -> None:
    bench = InboxBench()
    with pytest.raises(MissingKey):
        await bench.consumer.handle(a_delivery(key=""), bench.work, CODEC)
    assert bench.store.documents() == {}


async def test_a_marker_of_another_consumer_does_not_suppress_this_one_silently() -> None:
    bench = InboxBench()
    await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    other = Inbox("fulfil_order", bench.store, entity_is_marker=True, clock=bench.clock)
    with pytest.raises(ConfigurationError, match=r"fulfil_order.*process_order"):
        await other.handle(a_delivery(), bench.work, CODEC)


async def test_a_document_without_marker_in_the_markers_place_is_no_duplicate() -> None:
    bench = InboxBench()
    document = {"status": "placed by an older release"}
    await bench.store.commit(KEY, (Operation(kind="create", id=KEY, document=document),))
    handled = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
    assert handled.outcome is Outcome.QUARANTINED
    assert "cannot be read" in handled.description


async def test_a_too_old_message_is_refused_before_anything_is_written() -> None:
    clock = FakeClock()
    store = MemoryInbox(clock)
    inbox = Inbox("process_order", store, policy=Policy(max_age=100.0), clock=clock)
    handled = await inbox.handle(a_delivery(sent_at=clock.now() - 101), InboxBench().work, CODEC)
    assert handled.outcome is Outcome.TOO_OLD
    assert store.documents() == {}


async def test_a_consumer_protected_within_an_inbox_handler_has_no_part_in_its_unit() -> None:
    bench, inner = InboxBench(), Bench()
    seen: list[str] = []

    async def charge() -> str:
        seen.append(current_attempt().consumer)
        with pytest.raises(ConfigurationError, match="no unit of work"):
            current_unit()
        return "charged"

    async def work() -> str:
        before = current_unit()
        await inner.consumer.handle(a_delivery(), charge, CODEC)
        assert current_unit() is before
        before.mark({})
        seen.append(current_attempt().consumer)
        return "placed"

    handled = await bench.consumer.handle(a_delivery(), work, CODEC)
    assert handled.outcome is Outcome.PROCESSED
    assert seen == ["charge_payment", "process_order"]


async def test_outside_a_handler_there_is_neither_attempt_nor_unit() -> None:
    with pytest.raises(ConfigurationError, match="inside a handler"):
        current_attempt()
    with pytest.raises(ConfigurationError, match="inside a handler"):
        current_unit()


async def test_what_the_handler_changes_after_the_commit_is_not_in_the_store() -> None:
    bench = InboxBench()
    document = {"lines": ["a"]}

    async def work() -> str:
        current_unit().mark(document)
        return "placed"

    await bench.consumer.handle(a_delivery(), work, CODEC)
    document["lines"].append("b")
    found = await bench.store.read(KEY, KEY)
    assert found is not None
    assert found.document["lines"] == ["a"]
