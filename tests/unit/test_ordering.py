"""The version guard: newest wins, whatever the order, the repeats and the lost answers."""

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    Cause,
    ConfigurationError,
    Consumer,
    Delivery,
    Event,
    Handled,
    InvalidKey,
    MalformedContent,
    MissingKey,
    Outcome,
    PermanentFailure,
    Policy,
    Protected,
    ResultCodec,
    State,
    StoreUnavailable,
    TransientFailure,
    VersionGuard,
    apply_if_newer,
)
from shared.idempotency.events import DeliveryFaulted, DeliveryHandled, HandlerRan, StoreCalled
from shared.idempotency.states import MAX_VERSION, Document, Standing, StoredState, standing
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.stores.observed_state import ObservedStateStore
from shared.idempotency.testing import FakeClock

CODEC: ResultCodec[Any] = ResultCodec()


def state(version: int, level: int | None = None, id_: str = "tea") -> State:
    """A level of its own for each version, unless one is given."""
    return State(
        id=id_,
        version=version,
        document={"level": version * 10 if level is None else level},
    )


def delivery(key: str = "m-1", **fields: Any) -> Delivery:
    return Delivery(key=key, **fields)


def carrying(carried: State, result: Any = None) -> Callable[[], Awaitable[Any]]:
    """A handler whose message carries that state."""

    async def work() -> Any:
        apply_if_newer(carried)
        return result

    return work


async def offered(guard: VersionGuard, carried: State, **fields: Any) -> Handled[Any]:
    return await guard.handle(delivery(**fields), carrying(carried), CODEC)


class LossyStore(MemoryStateStore):
    """Loses the answers it is told to: of the writes in ``lost`` (counted from 1), after their effect.

    ``before``: without their effect.
    """

    def __init__(self, *lost: int, before: Iterable[int] = ()) -> None:
        super().__init__()
        self._lost, self._before = frozenset(lost), frozenset(before)
        self.writes = 0

    async def create(self, id_: str, document: Document) -> bool:
        return await self._answer(lambda: MemoryStateStore.create(self, id_, document))

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        return await self._answer(lambda: MemoryStateStore.replace(self, id_, document, etag))

    async def _answer(self, write: Callable[[], Awaitable[bool]]) -> bool:
        self.writes += 1
        if self.writes in self._before:
            raise StoreUnavailable("the write was lost")
        number = self.writes
        answer = await write()
        if number in self._lost:
            raise StoreUnavailable("the answer was lost")
        return answer


class MeetingStore(MemoryStateStore):
    """Lets every first read end only when all of ``readers`` have read: then all write at once.

    After that every call takes a turn of the loop, so that those in step stay in step.
    """

    def __init__(self, readers: int) -> None:
        super().__init__()
        self._all_have_read = asyncio.Event()
        self._left = readers
        self.refused = 0

    async def read(self, id_: str) -> StoredState | None:
        stored = await super().read(id_)
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._all_have_read.set()
                await asyncio.sleep(0)  # as long as the others take to wake
            await self._all_have_read.wait()
        await asyncio.sleep(0)
        return stored

    async def create(self, id_: str, document: Document) -> bool:
        await asyncio.sleep(0)
        written = await super().create(id_, document)
        self.refused += not written
        return written

    async def replace(self, id_: str, document: Document, etag: str) -> bool:
        await asyncio.sleep(0)
        written = await super().replace(id_, document, etag)
        self.refused += not written
        return written


@dataclasses.dataclass
class Seen:
    """An observer that keeps what it is told."""

    events: list[Event] = dataclasses.field(default_factory=list)

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)

    def trips(self) -> list[str]:
        return [event.operation for event in self.events if isinstance(event, StoreCalled)]

    def outcomes(self) -> list[Outcome]:
        return [e.handled.outcome for e in self.events if isinstance(e, DeliveryHandled)]


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def guard(store: MemoryStateStore) -> VersionGuard:
    return VersionGuard("stock", store)


class TestWhatIsApplied:
    async def test_a_newer_state_replaces_an_older_one(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        assert (await offered(guard, state(1))).outcome is Outcome.PROCESSED
        assert (await offered(guard, state(2))).outcome is Outcome.PROCESSED
        assert store.documents() == {"tea": {"level": 20, "version": 2}}

    async def test_an_older_state_is_stale_and_changes_nothing(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        await offered(guard, state(5))
        handled = await offered(guard, state(3))
        assert handled.outcome is Outcome.STALE
        assert handled.description == "version 3 came after version 5"
        assert store.documents()["tea"]["version"] == 5

    async def test_versions_may_have_gaps_and_begin_at_zero(self, guard: VersionGuard) -> None:
        outcomes = [(await offered(guard, state(n))).outcome for n in (0, 7, MAX_VERSION)]
        assert outcomes == [Outcome.PROCESSED] * 3

    @pytest.mark.parametrize("level", [10, 99])
    async def test_an_equal_version_is_a_duplicate_whatever_it_contains(
        self, guard: VersionGuard, store: MemoryStateStore, level: int
    ) -> None:
        await offered(guard, state(1))
        again = await offered(guard, state(1, level), redelivered=True)
        resent = await offered(guard, state(1, level))
        assert (again.outcome, again.cause) == (Outcome.DUPLICATE, Cause.REDELIVERY)
        assert (resent.outcome, resent.cause) == (Outcome.DUPLICATE, Cause.RESEND)
        assert store.documents()["tea"]["level"] == 10

    async def test_a_document_written_without_a_version_is_older_than_any(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        await store.create("tea", {"level": 1})
        assert (await offered(guard, state(0))).outcome is Outcome.PROCESSED

    async def test_a_document_whose_version_is_no_number_is_refused_and_kept(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        await store.create("tea", {"version": "2024-01-01"})
        with pytest.raises(ConfigurationError, match="version"):
            await offered(guard, state(1))
        assert store.documents() == {"tea": {"version": "2024-01-01"}}

    async def test_a_deleted_document_has_forgotten_its_version(
        self, store: MemoryStateStore
    ) -> None:
        class Deleting(MemoryStateStore):
            async def replace(self, id_: str, document: Document, etag: str) -> bool:
                self._documents.pop(id_, None)
                return await super().replace(id_, document, etag)

        deleting = Deleting()
        guard = VersionGuard("stock", deleting)
        await offered(guard, state(1))
        assert (await offered(guard, state(2))).outcome is Outcome.PROCESSED, "created anew"
        assert deleting.documents()["tea"]["version"] == 2

    async def test_a_change_is_made_from_what_is_there(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        def one_more(current: Document | None) -> Document:
            return {"seen": [*(current or {"seen": []})["seen"], "x"]}

        for version in (1, 1, 2, 1, 4):
            await offered(guard, State(id="tea", version=version, document=one_more))
        assert store.documents()["tea"] == {"seen": ["x", "x", "x"], "version": 4}

    @pytest.mark.parametrize(
        ("version", "current", "expected"),
        [
            (0, None, Standing.NEWER),
            (1, 0, Standing.NEWER),
            (1, 1, Standing.EQUAL),
            (1, 2, Standing.OLDER),
        ],
    )
    def test_the_decision_is_a_comparison(
        self, version: int, current: int | None, expected: Standing
    ) -> None:
        assert standing(version, current) is expected


class TestAnyOrder:
    @given(
        st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True).flatmap(
            lambda versions: st.permutations(versions * 2)
        ),
        st.booleans(),
    )
    def test_any_order_with_duplicates_ends_in_the_highest_version(
        self, versions: list[int], create_first: bool
    ) -> None:
        async def scenario() -> None:
            store = MemoryStateStore()
            guard = VersionGuard("stock", store, create_first=create_first)
            highest = -1
            for version in versions:
                outcome = (await offered(guard, state(version))).outcome
                expected = (
                    Outcome.PROCESSED
                    if version > highest
                    else Outcome.DUPLICATE
                    if version == highest
                    else Outcome.STALE
                )
                assert outcome is expected
                highest = max(highest, version)
            assert store.documents() == {"tea": {"level": highest * 10, "version": highest}}

        asyncio.run(scenario())

    @given(st.permutations([1, 2, 3, 4, 5, 5, 3]), st.sets(st.integers(1, 10)), st.booleans())
    def test_any_order_at_once_with_lost_answers_ends_in_the_highest_version(
        self, versions: list[int], lost: set[int], before: bool
    ) -> None:
        async def scenario() -> None:
            store = LossyStore(before=lost) if before else LossyStore(*lost)
            clock = FakeClock()
            guard = VersionGuard("stock", store, clock=clock)

            async def until_settled(version: int) -> Outcome:
                while True:  # as a broker would
                    try:
                        outcome = (await offered(guard, state(version))).outcome
                    except StoreUnavailable:
                        continue
                    if outcome is not Outcome.IN_FLIGHT:
                        return outcome

            outcomes = await clock.run(asyncio.gather(*map(until_settled, versions)))
            assert store.documents()["tea"] == {"level": 50, "version": 5}
            assert set(outcomes) <= {Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE}

        asyncio.run(scenario())


class TestRaces:
    @pytest.mark.parametrize("known", [False, True])
    @pytest.mark.parametrize("ascending", [False, True])
    async def test_thirty_versions_that_meet_end_in_the_highest(
        self, known: bool, ascending: bool
    ) -> None:
        store = MeetingStore(30)
        if known:
            await store.create("tea", {"level": 0, "version": 0})
        guard = VersionGuard("stock", store)
        versions = range(1, 31) if ascending else range(30, 0, -1)

        handled = await asyncio.gather(*(offered(guard, state(n)) for n in versions))

        assert store.refused >= 29, "they have met"
        assert store.documents() == {"tea": {"level": 300, "version": 30}}
        outcomes = [one.outcome for one in handled]
        assert set(outcomes) <= {Outcome.PROCESSED, Outcome.STALE}
        assert outcomes[-1 if ascending else 0] is Outcome.PROCESSED, "the highest"

    async def test_of_ten_twins_that_meet_one_is_processed_and_nine_are_duplicates(self) -> None:
        store = MeetingStore(10)
        guard = VersionGuard("stock", store)
        handled = await asyncio.gather(*(offered(guard, state(1)) for _ in range(10)))
        outcomes = [one.outcome for one in handled]
        assert outcomes.count(Outcome.PROCESSED) == 1
        assert outcomes.count(Outcome.DUPLICATE) == 9

    async def test_a_consumer_that_lost_its_session_cannot_undo_its_successor(self) -> None:
        """The old consumer has read, and is suspended; the new one handles that event and the next."""
        store = MemoryStateStore()
        guard = VersionGuard("timeline", store)
        read, go_on = asyncio.Event(), asyncio.Event()

        class Suspended(MemoryStateStore):
            _documents = store._documents
            _etags = store._etags

            def __init__(self) -> None:
                """The same documents as the other's."""

            async def read(self, id_: str) -> StoredState | None:
                stored = await MemoryStateStore.read(self, id_)
                read.set()
                await go_on.wait()
                return stored

        def appended(entry: int) -> Callable[[Document | None], Document]:
            return lambda current: {"seen": [*(current or {"seen": []})["seen"], entry]}

        def event(version: int) -> State:
            return State(id="order", version=version, document=appended(version))

        await offered(guard, event(1))
        late = asyncio.create_task(offered(VersionGuard("timeline", Suspended()), event(2)))
        await read.wait()
        await offered(guard, event(2))
        await offered(guard, event(3))
        go_on.set()

        assert (await late).outcome is Outcome.STALE
        assert store.documents()["order"] == {"seen": [1, 2, 3], "version": 3}

    async def test_endless_conflicts_end_as_in_flight_after_bounded_pauses(self) -> None:
        class Contended(MemoryStateStore):
            async def replace(self, id_: str, document: Document, etag: str) -> bool:
                return False

        contended = Contended()
        await contended.create("tea", {"version": 0})
        clock = FakeClock()
        guard = VersionGuard("stock", contended, clock=clock)
        handled = await clock.run(offered(guard, state(1)))
        assert handled.outcome is Outcome.IN_FLIGHT
        assert handled.retry_after > 0
        assert clock.monotonic() < 5.0


class TestTrips:
    @pytest.mark.parametrize(
        ("create_first", "there", "offers", "redelivered", "trips"),
        [
            (False, None, 1, False, ["read", "create"]),
            (False, 1, 2, False, ["read", "replace"]),
            (False, 1, 1, False, ["read"]),
            (False, 2, 1, True, ["read"]),
            (True, None, 1, False, ["create"]),
            (True, 1, 2, False, ["create", "read", "replace"]),
            (True, 1, 1, False, ["create", "read"]),
            (True, 1, 1, True, ["read"]),
            (True, 2, 1, False, ["create", "read"]),
        ],
    )
    async def test_the_budget_of_trips(
        self,
        store: MemoryStateStore,
        create_first: bool,
        there: int | None,
        offers: int,
        redelivered: bool,
        trips: list[str],
    ) -> None:
        if there is not None:
            await store.create("tea", {"version": there})
        seen = Seen()
        guard = VersionGuard("stock", ObservedStateStore(store, seen), create_first=create_first)
        await offered(guard, state(offers), redelivered=redelivered)
        assert seen.trips() == trips


class TestLostAnswers:
    @pytest.mark.parametrize("there", [None, 1])
    async def test_our_own_write_whose_answer_was_lost_is_processed(
        self, there: int | None
    ) -> None:
        store = LossyStore(1)
        if there is not None:
            await MemoryStateStore.create(store, "tea", {"version": there})
        clock = FakeClock()
        handled = await clock.run(offered(VersionGuard("stock", store, clock=clock), state(2)))
        assert handled.outcome is Outcome.PROCESSED
        assert store.writes == 2, "the same write was issued again"

    async def test_a_write_that_was_lost_is_made_again(self) -> None:
        store, clock = LossyStore(before=[1]), FakeClock()
        handled = await clock.run(offered(VersionGuard("stock", store, clock=clock), state(1)))
        assert handled.outcome is Outcome.PROCESSED
        assert store.documents() == {"tea": {"level": 10, "version": 1}}

    async def test_a_change_is_not_made_twice_when_its_answer_is_lost(self) -> None:
        store, clock = LossyStore(1), FakeClock()
        guard = VersionGuard("stock", store, clock=clock)

        def one_more(current: Document | None) -> Document:
            return {"count": (current or {"count": 0})["count"] + 1}

        await clock.run(offered(guard, State(id="tea", version=1, document=one_more)))
        assert store.documents()["tea"]["count"] == 1

    async def test_another_content_of_equal_version_is_not_taken_for_ours(self) -> None:
        class TwinFirst(LossyStore):
            async def create(self, id_: str, document: Document) -> bool:
                await MemoryStateStore.create(self, id_, {"level": 99, "version": 1})
                return await super().create(id_, document)

        store, clock = TwinFirst(before=[1]), FakeClock()
        handled = await clock.run(offered(VersionGuard("stock", store, clock=clock), state(1)))
        assert handled.outcome is Outcome.DUPLICATE

    async def test_a_null_that_the_store_leaves_out_does_not_hide_our_own_write(self) -> None:
        class WithoutNulls(LossyStore):
            async def create(self, id_: str, document: Document) -> bool:
                kept = {name: value for name, value in document.items() if value is not None}
                return await super().create(id_, kept)

        store, clock = WithoutNulls(1), FakeClock()
        carried = State(id="tea", version=1, document={"level": 1, "note": None})
        handled = await clock.run(offered(VersionGuard("stock", store, clock=clock), carried))
        assert handled.outcome is Outcome.PROCESSED

    async def test_a_store_that_stays_down_is_a_fault_and_the_next_delivery_is_no_double(
        self,
    ) -> None:
        store, clock, seen = LossyStore(1, before=range(2, 9)), FakeClock(), Seen()
        guard = VersionGuard("stock", store, clock=clock, observer=seen)
        with pytest.raises(StoreUnavailable):
            await clock.run(offered(guard, state(1)))
        assert [e.error for e in seen.events if isinstance(e, DeliveryFaulted)] == [
            "StoreUnavailable"
        ]
        again = await clock.run(offered(guard, state(1), redelivered=True))
        assert (again.outcome, again.cause) == (Outcome.DUPLICATE, Cause.REDELIVERY)


class TestHandlers:
    async def test_its_result_is_given_for_every_outcome(self, guard: VersionGuard) -> None:
        results = [
            (await guard.handle(delivery(), carrying(state(n), f"r{n}"), CODEC)).result
            for n in (2, 2, 1)
        ]
        assert results == ["r2", "r2", "r1"]

    async def test_what_it_raises_is_raised_and_nothing_is_written(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        async def fails() -> None:
            apply_if_newer(state(1))
            raise TransientFailure("not now")

        with pytest.raises(TransientFailure):
            await guard.handle(delivery(), fails, CODEC)
        assert store.documents() == {}

    async def test_a_permanent_failure_is_the_outcome_failed(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        async def refuses() -> None:
            raise PermanentFailure("Discontinued", "the article is no longer kept")

        def refused(current: Document | None) -> Document:
            raise PermanentFailure("NotAllowed", "this cannot follow that")

        handler = await guard.handle(delivery(), refuses, CODEC)
        change = await offered(guard, State(id="tea", version=1, document=refused))
        assert (handler.outcome, handler.reason) == (Outcome.FAILED, "Discontinued")
        assert (change.outcome, change.reason) == (Outcome.FAILED, "NotAllowed")
        assert store.documents() == {}

    async def test_one_that_hangs_is_cancelled_at_its_deadline_and_nothing_is_written(
        self, store: MemoryStateStore
    ) -> None:
        clock = FakeClock()
        guard = VersionGuard("stock", store, clock=clock, policy=Policy(deadline=7.0))

        async def hangs() -> None:
            apply_if_newer(state(1))
            await clock.sleep(1000)

        with pytest.raises(TransientFailure, match="7 s"):
            await clock.run(guard.handle(delivery(), hangs, CODEC))
        assert store.documents() == {}

    async def test_one_that_names_no_state_is_refused_rather_than_acknowledged(
        self, guard: VersionGuard
    ) -> None:
        async def forgets() -> None:
            return None

        with pytest.raises(ConfigurationError, match="apply_if_newer"):
            await guard.handle(delivery(), forgets, CODEC)

    async def test_one_that_names_two_states_is_refused_and_none_is_written(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        async def names_two() -> None:
            apply_if_newer(state(1))
            apply_if_newer(state(1, id_="coffee"))

        with pytest.raises(ConfigurationError, match="one state"):
            await guard.handle(delivery(), names_two, CODEC)
        assert store.documents() == {}

    async def test_a_guard_within_a_handler_is_on_its_own(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        inner = VersionGuard("inner", store)

        async def nests() -> None:
            apply_if_newer(state(1))
            await inner.handle(delivery("m-2"), carrying(state(7, id_="coffee")), CODEC)

        await guard.handle(delivery(), nests, CODEC)
        assert {id_: d["version"] for id_, d in store.documents().items()} == {
            "tea": 1,
            "coffee": 7,
        }

    async def test_a_state_named_in_another_form_within_a_handler_is_refused(
        self, guard: VersionGuard, store: MemoryStateStore
    ) -> None:
        inner = Consumer("inner", MemoryStore())

        async def nests() -> None:
            await inner.handle(delivery("m-2"), carrying(state(7)), CODEC)

        with pytest.raises(ConfigurationError, match="VersionGuard"):
            await guard.handle(delivery(), nests, CODEC)
        assert store.documents() == {}

    def test_a_state_named_outside_a_handler_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="inside a handler"):
            apply_if_newer(state(1))


class TestWhatIsRefused:
    @pytest.mark.parametrize("version", [-1, MAX_VERSION + 1, True, 1.0, "1", None])
    def test_a_version_that_is_no_whole_number_in_range(self, version: Any) -> None:
        with pytest.raises(MalformedContent) as refused:
            State(id="tea", version=version, document={})
        assert refused.value.reason == "InvalidVersion"

    @pytest.mark.parametrize(("id_", "error"), [("", MissingKey), ("x" * 1025, InvalidKey)])
    def test_an_id_that_can_identify_nothing(self, id_: str, error: type[Exception]) -> None:
        with pytest.raises(error, match="id of a state"):
            State(id=id_, version=1, document={})

    async def test_a_document_that_contradicts_its_version(self, guard: VersionGuard) -> None:
        with pytest.raises(ConfigurationError, match="version"):
            await offered(guard, State(id="tea", version=1, document={"version": 2}))

    def test_a_guard_without_a_name(self, store: MemoryStateStore) -> None:
        with pytest.raises(ConfigurationError, match="name"):
            VersionGuard("", store)


async def test_each_delivery_is_told_to_the_observer(store: MemoryStateStore) -> None:
    seen = Seen()
    guard: Protected = VersionGuard("stock", store, observer=seen)
    for version in (2, 2, 1):
        await guard.handle(delivery(), carrying(state(version)), CODEC)
    assert seen.outcomes() == [Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE]
    assert sum(isinstance(event, HandlerRan) for event in seen.events) == 3


async def test_nothing_is_kept_beside_the_documents(store: MemoryStateStore) -> None:
    guard = VersionGuard("stock", store)
    for version, id_ in itertools.product(range(5), ("tea", "coffee")):
        await offered(guard, state(version, id_=id_))
    assert {id_: set(document) for id_, document in store.documents().items()} == {
        "tea": {"level", "version"},
        "coffee": {"level", "version"},
    }
