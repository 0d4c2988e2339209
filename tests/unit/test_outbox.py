"""The outbox: what is committed is sent, at least once, and what is not committed never is."""

import itertools

import pytest

from shared.idempotency import (
    BusinessConflict,
    ConfigurationError,
    Inbox,
    MalformedContent,
    Message,
    Outcome,
    StoreUnavailable,
    current_unit,
)
from shared.idempotency.events import MessageRelayed
from shared.idempotency.inbox_store import Operation
from shared.idempotency.outbox import message_id
from shared.idempotency.relay import COMMIT_WITHIN, FORGET_AFTER
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.testing import HOSTILE_KEYS
from tests.unit.doubles import CODEC, KEY, HandlerFailed, a_delivery
from tests.unit.posts import GRACE, STORES, PostBench


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest) -> PostBench:
    return PostBench(announces=STORES[request.param])


# -- the ordinary course


async def test_messages_are_sent_in_order_right_after_the_commit_and_nothing_is_left(
    bench: PostBench,
) -> None:
    handled = await bench.handle(trace_parent="00-11-22-01")
    assert handled.outcome is Outcome.PROCESSED
    first, second = bench.post.arrived
    assert (first.destination, first.body, first.session_id) == ("order-events", b"placed", "s")
    assert first.properties == {"kind": "OrderPlaced"}
    assert (second.destination, second.body, second.ordinal) == ("audit", b"noted", 2)
    assert first.enqueued_at == bench.clock.now()
    assert (first.resends, first.trace_parent) == (0, "00-11-22-01")
    assert (bench.pending(), bench.store.pointers) == (0, {})
    assert (await bench.sweep()).relayed == 0


async def test_trips_of_a_fresh_delivery_with_messages() -> None:
    """Without pointers the commit, and one to take away what was sent; with them two more."""
    searched, announcing = PostBench(), PostBench(announces=True)
    await searched.handle()
    await announcing.handle()
    assert searched.wire.trips == ["commit", "commit"]
    assert announcing.wire.trips == ["announce", "commit", "commit", "forget"]


async def test_trips_of_duplicates_are_those_without_an_outbox() -> None:
    for announces in STORES.values():
        bench = PostBench(announces=announces)
        await bench.handle(bench.other)
        assert (await bench.handle(redelivered=True)).outcome is Outcome.DUPLICATE
        assert bench.wire.trips == ["read"]


async def test_a_refused_commit_costs_its_pointer_and_takes_it_back() -> None:
    bench = PostBench(announces=True)
    await bench.handle(bench.other)
    assert (await bench.handle()).outcome is Outcome.DUPLICATE
    assert bench.wire.trips == ["announce", "commit", "read", "forget"]
    assert bench.store.pointers == {}
    assert len(bench.post.arrived) == 2


async def test_a_unit_without_messages_costs_one_trip(bench: PostBench) -> None:
    async def quiet() -> str:
        current_unit().mark({"status": "placed"})
        return "placed"

    await bench.consumer.handle(a_delivery(), quiet, CODEC)
    assert bench.wire.trips == ["commit"]


# -- nothing is sent that is not committed


async def test_a_handler_that_raises_sends_nothing(bench: PostBench) -> None:
    async def work() -> str:
        await bench.work()
        raise HandlerFailed

    with pytest.raises(HandlerFailed):
        await bench.consumer.handle(a_delivery(), work, CODEC)
    assert bench.wire.trips == []
    assert (bench.post.arrived, bench.pending()) == ([], 0)


async def test_a_conflict_sends_nothing_and_its_pointer_is_forgotten_in_time(
    bench: PostBench,
) -> None:
    async def work() -> str:
        await bench.work()
        current_unit().patch("missing", {"left": 1})
        return "never"

    with pytest.raises(BusinessConflict):
        await bench.consumer.handle(a_delivery(), work, CODEC)
    for _ in range(3):
        await bench.sweep(FORGET_AFTER / 2)
    assert (bench.post.arrived, bench.pending(), bench.store.pointers) == ([], 0, {})


async def test_a_commit_that_comes_too_long_after_its_announcement_is_not_sent() -> None:
    """Its pointer might be forgotten by then."""
    bench = PostBench(announces=True)

    async def pause() -> None:
        await bench.clock.advance(COMMIT_WITHIN + 1.0)

    bench.wire.before["announce"] = pause
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert bench.store.documents() == {}
    assert COMMIT_WITHIN * 2 < FORGET_AFTER


# -- the broker is down


async def test_a_broker_that_is_down_does_not_fail_the_delivery_and_a_sweep_sends_later(
    bench: PostBench,
) -> None:
    bench.post.down = True
    committed_at = bench.clock.now()
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.pending() == 2
    bench.post.down = False
    assert (await bench.sweep(GRACE - 1.0)).relayed == 0, "left to the process that committed"
    swept = await bench.sweep(2.0)
    assert (swept.relayed, swept.left) == (1, 0)
    assert bench.post.bodies() == [b"placed", b"noted"]
    assert {m.enqueued_at for m in bench.post.arrived} == {committed_at}
    assert {m.resends for m in bench.post.arrived} == {1}
    assert (bench.pending(), bench.store.pointers) == (0, {})


async def test_what_was_sent_is_not_sent_again_when_the_rest_fails(bench: PostBench) -> None:
    send = bench.post.send

    async def send_until_down(message: Message) -> None:
        await send(message)
        bench.post.down = True

    bench.outbox._send = send_until_down
    await bench.handle()
    assert (bench.post.bodies(), bench.pending()) == ([b"placed"], 1)
    bench.post.down = False
    bench.outbox._send = send
    await bench.sweep()
    assert bench.post.bodies() == [b"placed", b"noted"]
    assert (bench.pending(), bench.store.pointers) == (0, {})


async def test_vain_tries_are_further_and_further_apart(bench: PostBench) -> None:
    bench.post.down = True
    await bench.handle()
    tried = [minute for minute in range(1, 40) if (await bench.sweep(60.0)).left]
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1]
    bench.post.down = False
    await bench.sweep(3600.0)
    assert len({m.message_id for m in bench.post.arrived}) == 2
    assert bench.post.arrived[0].resends == len(tried) + 1


async def test_a_message_that_fails_for_a_reason_of_its_own_keeps_no_other_from_being_sent(
    bench: PostBench,
) -> None:
    """Not even as a fault that nobody expected; and it stays."""
    send = bench.post.send

    async def send_some(message: Message) -> None:
        if message.destination == "audit":
            raise RuntimeError("unknown destination")
        await send(message)

    bench.outbox._send = send_some
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert (await bench.handle(key="order-2")).outcome is Outcome.PROCESSED
    await bench.sweep()
    assert bench.post.bodies() == [b"placed", b"placed"]
    assert bench.pending() == 2


async def test_a_sweep_stops_at_a_broker_that_is_down_and_leaves_the_rest_due(
    bench: PostBench,
) -> None:
    bench.post.down = True
    for number in range(10):
        await bench.handle(key=f"order-{number}")
    assert (await bench.sweep()).left == 3
    bench.post.down = False
    assert (await bench.sweep(1.0)).relayed == 7
    assert (await bench.sweep(GRACE)).relayed == 3


async def test_a_sweep_is_bounded_by_its_time_and_the_next_goes_on(bench: PostBench) -> None:
    bench.post.down = True
    for number in range(6):
        await bench.handle(key=f"order-{number}")
    bench.post.down = False
    send = bench.post.send

    async def slow(message: Message) -> None:
        await bench.clock.sleep(5.0)
        await send(message)

    bench.outbox._send = slow
    await bench.clock.advance(GRACE)
    assert (await bench.clock.run(bench.outbox.sweep(within=25.0))).relayed == 3
    assert (await bench.clock.run(bench.outbox.sweep(within=25.0, batch=1))).relayed == 3


# -- the store is down


async def test_what_was_sent_and_could_not_be_taken_away_is_sent_again_under_its_id(
    bench: PostBench,
) -> None:
    async def down() -> None:
        bench.wire.down = True

    async def first_commit() -> None:
        bench.wire.before["commit"] = down

    bench.wire.before["commit"] = first_commit
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    bench.wire.down = False
    await bench.sweep()
    assert bench.post.bodies() == [b"placed", b"noted"] * 2
    ids = [message.message_id for message in bench.post.arrived]
    assert ids[:2] == ids[2:]
    assert (bench.pending(), bench.store.pointers) == (0, {})


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_commit_whose_answer_is_lost_sends_its_messages_once(
    bench: PostBench, lost: str
) -> None:
    bench.wire.lose["commit"] = [lost]  # type: ignore[list-item]
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.post.bodies() == [b"placed", b"noted"]
    assert (bench.pending(), bench.store.pointers) == (0, {})


async def test_without_its_pointer_a_transaction_is_not_sent() -> None:
    bench = PostBench(announces=True)
    bench.wire.lose["announce"] = ["request"] * 10
    with pytest.raises(StoreUnavailable):
        await bench.handle()
    assert "commit" not in bench.wire.trips
    assert bench.store.documents() == {}


async def test_a_commit_that_is_slower_than_a_sweep_is_still_sent_when_its_process_dies() -> None:
    """The sweeper has seen a pointer that led to nothing, and must not have forgotten it."""
    bench = PostBench(announces=True)

    async def swept_meanwhile() -> None:
        swept = await bench.an_outbox(bench.store).sweep()
        assert (swept.undecided, swept.forgotten) == (1, 0)

    async def slow() -> None:
        await bench.clock.advance(GRACE + 1.0)
        await swept_meanwhile()

    bench.wire.before["commit"] = slow
    bench.post.down = True  # as good as dead: nothing is sent after the commit
    assert (await bench.handle()).outcome is Outcome.PROCESSED
    assert bench.pending() == 2
    bench.post.down = False
    await bench.sweep(FORGET_AFTER)
    assert bench.post.bodies() == [b"placed", b"noted"]
    assert (bench.pending(), bench.store.pointers) == (0, {})


async def test_what_another_has_taken_away_does_not_keep_the_rest_from_being_taken_away(
    bench: PostBench,
) -> None:
    async def cleared_meanwhile() -> None:
        first = next(id_ for _, id_ in bench.store.documents() if id_.startswith("!=pending"))
        delete = Operation(kind="delete", id=first)
        assert await bench.store.commit(KEY, (delete,)) is None

    async def at_the_second_commit() -> None:
        bench.wire.before["commit"] = cleared_meanwhile

    bench.wire.before["commit"] = at_the_second_commit
    await bench.handle()
    assert (bench.pending(), bench.store.pointers) == (0, {})
    assert bench.wire.trips.count("commit") == 3


# -- message ids, limits, refusals


def test_a_message_id_is_a_pure_function_and_fits_the_broker() -> None:
    parts = [
        (consumer, key, incarnation, ordinal)
        for consumer in ("a", "ab", "a:b;")
        for key in (*HOSTILE_KEYS, "b", "1:b;")
        for incarnation in ("1", "2")
        for ordinal in (1, 2, 11)
    ]
    ids = {message_id(*each) for each in parts}
    assert len(ids) == len(parts)
    assert max(map(len, ids)) <= 128
    assert message_id("a", "b", "c", 1) == message_id("a", "b", "c", 1)


async def test_the_id_holds_consumer_key_and_the_attempt_that_was_committed() -> None:
    bench = PostBench()
    await bench.handle()
    owner = bench.store.documents()[KEY, KEY]["idempotency_owner"]
    assert [m.message_id for m in bench.post.arrived] == [
        message_id("process_order", KEY, owner, ordinal) for ordinal in (1, 2)
    ]


async def test_relays_are_told_to_the_observer(bench: PostBench) -> None:
    await bench.handle()
    bench.post.down = True
    await bench.handle(key="order-2")
    bench.post.down = False
    await bench.sweep()
    told = [(e.destination, e.by, e.sent) for e in bench.events if isinstance(e, MessageRelayed)]
    assert told == [
        ("order-events", "commit", True),
        ("audit", "commit", True),
        ("order-events", "commit", False),
        ("order-events", "sweep", True),
        ("audit", "sweep", True),
    ]


async def test_messages_count_among_the_operations() -> None:
    bench = PostBench()

    async def work() -> str:
        current_unit().mark({})
        for number in range(97):
            current_unit().create(f"line-{number}", {})
        current_unit().send("a", b"")
        current_unit().send("b", b"")
        with pytest.raises(MalformedContent, match="message to 'c'"):
            current_unit().send("c", b"")
        return "done"

    assert (await bench.consumer.handle(a_delivery(), work, CODEC)).outcome is Outcome.PROCESSED


async def test_what_no_broker_takes_is_refused_before_it_is_committed() -> None:
    bench = PostBench()

    async def work() -> str:
        unit = current_unit()
        with pytest.raises(MalformedContent, match=r"message to 'events'.* bytes"):
            unit.send("events", b"x" * 200_000)
        with pytest.raises(MalformedContent, match=r"message to 'events'.* session id"):
            unit.send("events", b"", session_id="s" * 129)
        with pytest.raises(MalformedContent, match=r"message to 'events'.* surrogate"):
            unit.send("events", b"", properties={"half": "\ud83d"})
        with pytest.raises(ConfigurationError, match="destination"):
            unit.send("", b"")
        unit.mark({})
        return "done"

    await bench.consumer.handle(a_delivery(), work, CODEC)
    assert bench.post.arrived == []


async def test_without_an_outbox_nothing_can_be_sent() -> None:
    async def work() -> str:
        current_unit().send("order-events", b"")
        return "never"

    with pytest.raises(ConfigurationError, match="outbox"):
        await Inbox("process_order", MemoryInbox()).handle(a_delivery(), work, CODEC)


async def test_pending_documents_show_no_body_in_a_repr() -> None:
    message = Message(destination="d", message_id="m", ordinal=1, body=b"secret")
    assert "secret" not in repr(message)
