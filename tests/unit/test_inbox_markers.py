"""Where markers lie, how several share a partition, and when a key may be used again."""

import pytest

from shared.idempotency import (
    ConfigurationError,
    Inbox,
    MissingKey,
    Outcome,
    Policy,
    current_unit,
)
from shared.idempotency.inbox_store import Operation
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import HOSTILE_KEYS, FakeClock
from tests.unit.doubles import CODEC, KEY, OTHER, Loss, Wire, WiredInbox, a_delivery

LOSSES: list[Loss] = ["request", "answer"]


async def nothing() -> str:
    return "done"


def before_the_slash(key: str) -> str:
    return key.split("/")[0]


async def test_each_consumer_has_a_marker_of_its_own_in_the_partition() -> None:
    """⚠ One subscriber must not suppress the others."""
    store = MemoryInbox()
    for name in ("email", "loyalty", "payments"):
        inbox = Inbox(name, store)
        assert (await inbox.handle(a_delivery(), nothing, CODEC)).outcome is Outcome.PROCESSED
        again = await inbox.handle(a_delivery(), nothing, CODEC)
        assert again.outcome is Outcome.DUPLICATE
    assert {partition for partition, _ in store.documents()} == {KEY}
    assert len(store.documents()) == 3


async def test_a_plain_marker_lies_beside_the_entity_of_its_key() -> None:
    store = MemoryInbox()

    async def place() -> str:
        current_unit().mark({"status": "placed"})
        return "placed"

    await Inbox("process_order", store, entity_is_marker=True).handle(a_delivery(), place, CODEC)
    handled = await Inbox("fulfil_order", store).handle(a_delivery(), nothing, CODEC)
    assert handled.outcome is Outcome.PROCESSED
    assert set(store.documents()) == {(KEY, KEY), (KEY, "!fulfil_order!order-1")}


async def test_no_two_consumers_and_keys_share_a_place_and_none_is_an_entitys() -> None:
    names = ["a", "a!b", "b", "!a", "~", "a" * 200, "caf\u00e9", "A"]
    plain = [Inbox(name, MemoryInbox(), partition=lambda key: KEY) for name in names]
    entity = Inbox("entity", MemoryInbox(), partition=lambda key: KEY, entity_is_marker=True)
    keys = [*HOSTILE_KEYS, "b!c", "!b!c"]
    places = [inbox.place_of(key) for inbox in (*plain, entity) for key in keys]
    assert len({*places}) == len(places)
    assert max(len(place.id) for place in places) <= 255


async def test_the_partition_is_a_function_of_the_key_and_writes_go_nowhere_else() -> None:
    store = MemoryInbox()
    inbox = Inbox("fulfil_line", store, partition=before_the_slash)

    async def work() -> str:
        current_unit().create("line-1", {})
        assert await current_unit().read("line-0") is not None
        return "done"

    await store.commit("order-1", (Operation(kind="create", id="line-0"),))
    await inbox.handle(a_delivery(key="order-1/line-1"), work, CODEC)
    await inbox.handle(a_delivery(key="order-1/line-2"), nothing, CODEC)
    assert {partition for partition, _ in store.documents()} == {"order-1"}
    assert len(store.documents()) == 4


async def test_a_key_without_a_partition_is_refused_before_its_handler_runs() -> None:
    store = MemoryInbox()
    inbox = Inbox("fulfil_line", store, partition=before_the_slash)
    ran: list[str] = []

    async def work() -> str:
        ran.append("ran")
        return "never"

    with pytest.raises(MissingKey, match="partition"):
        await inbox.handle(a_delivery(key="/line-1"), work, CODEC)
    assert ran == []


async def test_a_mismatch_with_a_plain_marker_names_the_changed_fields() -> None:
    inbox = Inbox("fulfil_order", MemoryInbox())
    await inbox.handle(a_delivery(body=b'{"order_id": "1", "warehouse": "a"}'), nothing, CODEC)
    body = b'{"order_id": "1", "warehouse": "b"}'
    handled = await inbox.handle(a_delivery(fingerprint=OTHER, body=body), nothing, CODEC)
    assert handled.outcome is Outcome.MISMATCH
    assert "changed: warehouse" in handled.description


def test_an_entity_never_expires_and_a_plain_marker_has_no_entity_to_compare() -> None:
    with pytest.raises(ConfigurationError, match="never expires"):
        Inbox("process_order", MemoryInbox(), entity_is_marker=True, reusable_keys=True)
    with pytest.raises(ConfigurationError, match="entity"):
        Inbox("process_order", MemoryInbox(), changed_fields=lambda document, body: ())


class Expiring:
    """Two workers of one consumer; a finished marker is kept for 100 s."""

    def __init__(self, *, reusable_keys: bool) -> None:
        self.clock = FakeClock()
        self.store = MemoryInbox(self.clock)
        self.wire = Wire()
        policy = Policy(retention=100.0, memory=0.0)
        self.inbox, self.other = (
            Inbox("submit", store, reusable_keys=reusable_keys, policy=policy, clock=self.clock)
            for store in (WiredInbox(self.store, self.wire), self.store)
        )

    async def handled(self, fingerprint: str = OTHER) -> Outcome:
        delivery = a_delivery(fingerprint=fingerprint)
        return (await self.clock.run(self.inbox.handle(delivery, nothing, CODEC))).outcome

    async def kept(self, seconds: float) -> None:
        """A marker of that age."""
        await self.other.handle(a_delivery(), nothing, CODEC)
        await self.clock.advance(seconds)


async def test_a_reusable_key_is_used_again_once_its_marker_has_expired() -> None:
    bench = Expiring(reusable_keys=True)
    await bench.kept(103.0)
    assert await bench.handled() is Outcome.PROCESSED
    assert bench.wire.trips == ["commit", "read", "commit"]
    assert await bench.handled() is Outcome.DUPLICATE
    assert len(bench.store.documents()) == 1


async def test_a_reusable_key_is_not_used_again_before() -> None:
    bench = Expiring(reusable_keys=True)
    await bench.kept(101.0)
    assert await bench.handled() is Outcome.MISMATCH


async def test_any_other_key_is_a_duplicate_however_old_its_marker() -> None:
    bench = Expiring(reusable_keys=False)
    await bench.kept(1_000_000.0)
    assert await bench.handled() is Outcome.MISMATCH


async def test_of_two_that_use_an_expired_key_again_one_succeeds() -> None:
    bench = Expiring(reusable_keys=True)
    await bench.kept(103.0)
    commits = 0

    async def other_is_first() -> None:
        nonlocal commits
        commits += 1
        if commits == 2:  # the first is refused by the expired marker
            await bench.other.handle(a_delivery(fingerprint=OTHER), nothing, CODEC)
        else:
            bench.wire.before["commit"] = other_is_first

    bench.wire.before["commit"] = other_is_first
    assert await bench.handled() is Outcome.DUPLICATE
    assert len(bench.store.documents()) == 1


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_reuse_whose_answer_is_lost_was_processed(loss: Loss) -> None:
    bench = Expiring(reusable_keys=True)
    await bench.kept(103.0)
    bench.wire.lose["commit"] = [None, loss]  # the first is refused by the expired marker
    assert await bench.handled() is Outcome.PROCESSED
    assert bench.wire.trips.count("commit") == 3
