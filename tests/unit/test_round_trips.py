"""How often a delivery goes to the store: the budget, row by row, for both forms.

What recorded steps cost, and that the last is merged into the completion, is in test_steps.py.
"""

import pytest

from shared.idempotency import Inbox, InboxStore, Outcome, Policy, current_unit
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import FakeClock
from tests.unit.doubles import CODEC, Bench, HandlerFailed, Wire, WiredInbox, a_delivery


class TestTwoPhase:
    async def test_fresh_2(self) -> None:
        bench = Bench()
        assert (await bench.handle()).outcome is Outcome.PROCESSED
        assert bench.wire.trips == ["insert", "replace"]

    async def test_duplicate_that_the_broker_calls_a_redelivery_1(self) -> None:
        bench = Bench()
        await bench.handle(consumer=bench.other)
        assert (await bench.handle(redelivered=True)).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["read"]

    async def test_duplicate_on_first_delivery_2(self) -> None:
        bench = Bench()
        await bench.handle(consumer=bench.other)
        assert (await bench.handle()).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["insert", "read"]

    @pytest.mark.parametrize("redelivered", [False, True])
    async def test_duplicate_of_something_completed_here_seconds_ago_0(
        self, redelivered: bool
    ) -> None:
        bench = Bench(memory=10.0)
        await bench.handle()
        bench.wire.trips.clear()
        await bench.clock.advance(9)
        assert (await bench.handle(redelivered=redelivered)).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == []
        await bench.clock.advance(2)
        assert (await bench.handle(redelivered=True)).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["read"]

    async def test_an_operators_forced_resend_goes_to_the_store_however_recent_the_record(
        self,
    ) -> None:
        bench = Bench(memory=10.0)
        await bench.handle()
        bench.wire.trips.clear()
        assert (await bench.handle(forced=True)).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["insert", "read"]

    async def test_handler_failed_and_a_retry_is_wanted_2(self) -> None:
        bench = Bench()
        bench.effect.error = HandlerFailed()
        with pytest.raises(HandlerFailed):
            await bench.handle()
        assert bench.wire.trips == ["insert", "delete"]

    async def test_fresh_that_the_broker_calls_a_redelivery_3(self) -> None:
        """The price of reading first, where the earlier delivery left no record."""
        bench = Bench()
        assert (await bench.handle(redelivered=True)).outcome is Outcome.PROCESSED
        assert bench.wire.trips == ["read", "insert", "replace"]

    async def test_mismatch_on_first_delivery_2(self) -> None:
        bench = Bench()
        await bench.handle(consumer=bench.other)
        assert (await bench.handle(fingerprint="json1:bb")).outcome is Outcome.MISMATCH
        assert bench.wire.trips == ["insert", "read"]


class InboxBench:
    """An inbox consumer on memory behind a wire; another worker shares the store."""

    def __init__(self, **policy: float) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock)
        self.wire = Wire()
        numbers = Policy(**{"memory": 0.0, **policy})  # type: ignore[arg-type]
        inbox = WiredInbox(self.store, self.wire)
        self.consumer = self._inbox(inbox, numbers)
        self.other = self._inbox(self.store, numbers)
        self.error: Exception | None = None

    def _inbox(self, store: InboxStore, policy: Policy) -> Inbox:
        return Inbox("process_order", store, entity_is_marker=True, policy=policy, clock=self.clock)

    async def work(self) -> str:
        if self.error:
            raise self.error
        current_unit().mark({"status": "placed"})
        current_unit().create("line-1", {"sku": "a"})
        return "placed"


class TestInbox:
    async def test_fresh_1(self) -> None:
        bench = InboxBench()
        handled = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
        assert handled.outcome is Outcome.PROCESSED
        assert bench.wire.trips == ["commit"]

    async def test_duplicate_that_the_broker_calls_a_redelivery_1(self) -> None:
        bench = InboxBench()
        await bench.other.handle(a_delivery(), bench.work, CODEC)
        again = await bench.consumer.handle(a_delivery(redelivered=True), bench.work, CODEC)
        assert again.outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["read"]

    async def test_duplicate_on_first_delivery_2(self) -> None:
        bench = InboxBench()
        await bench.other.handle(a_delivery(), bench.work, CODEC)
        again = await bench.consumer.handle(a_delivery(), bench.work, CODEC)
        assert (again.outcome, again.result) == (Outcome.DUPLICATE, "placed")
        assert bench.wire.trips == ["commit", "read"]

    async def test_duplicate_of_something_completed_here_seconds_ago_0(self) -> None:
        bench = InboxBench(memory=10.0)
        await bench.consumer.handle(a_delivery(), bench.work, CODEC)
        bench.wire.trips.clear()
        again = await bench.consumer.handle(a_delivery(redelivered=True), bench.work, CODEC)
        assert (again.outcome, again.result) == (Outcome.DUPLICATE, "placed")
        assert bench.wire.trips == []

    async def test_an_operators_forced_resend_goes_to_the_store_however_recent_the_marker(
        self,
    ) -> None:
        bench = InboxBench(memory=10.0)
        await bench.consumer.handle(a_delivery(), bench.work, CODEC)
        bench.wire.trips.clear()
        again = await bench.consumer.handle(a_delivery(forced=True), bench.work, CODEC)
        assert again.outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["commit", "read"]

    async def test_handler_failed_0(self) -> None:
        bench = InboxBench()
        bench.error = HandlerFailed()
        with pytest.raises(HandlerFailed):
            await bench.consumer.handle(a_delivery(), bench.work, CODEC)
        assert bench.wire.trips == []
