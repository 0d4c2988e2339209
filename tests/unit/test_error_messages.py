"""What an exception tells whoever finds it in a log: what happened, to which consumer and key, what to do."""

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    DeadlineExceeded,
    Delivery,
    Effects,
    Handled,
    IdempotencyError,
    Inbox,
    InvalidKey,
    MalformedContent,
    MissingKey,
    Policy,
    Protected,
    Quarantine,
    Rerun,
    ResultCodec,
    State,
    Status,
    StoreUnavailable,
    TransientFailure,
    UncertainEffect,
    VersionGuard,
    current_attempt,
)
from shared.idempotency.outcomes import of_quarantined
from shared.idempotency.stores import cosmos_access, table_access
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.stores.memory_state import MemoryStateStore
from shared.idempotency.testing import a_record
from tests.unit.doubles import CODEC, KEY, Bench, HandlerFailed, a_delivery

FORMS: list[Callable[[], Protected]] = [
    lambda: Consumer("loyalty", MemoryStore()),
    lambda: Inbox("loyalty", MemoryInbox()),
    lambda: VersionGuard("loyalty", MemoryStateStore()),
]


def told(error: BaseException) -> str:
    """What a log shows of an exception."""
    return "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_handler_raises_says_for_which_consumer_and_key(
    form: Callable[[], Protected],
) -> None:
    async def fail() -> str:
        raise HandlerFailed("out of paper")

    with pytest.raises(HandlerFailed) as raised:
        await form().handle(Delivery(key="o-1"), fail, CODEC)
    assert "out of paper" in told(raised.value)
    assert "while consumer loyalty handled key 'o-1'" in told(raised.value)


async def test_an_exception_that_is_raised_again_and_again_gets_one_note_for_each_key() -> None:
    error = HandlerFailed("always the same")

    async def fail() -> str:
        raise error

    consumer = Consumer("loyalty", MemoryStore())
    for key in ("o-1", "o-1", "o-2"):
        with pytest.raises(HandlerFailed):
            await consumer.handle(Delivery(key=key), fail, CODEC)
    assert len(error.__notes__) == 2


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        ("", MissingKey, "no deduplication key; without it duplicates cannot be recognised"),
        ("k" * 100_000, InvalidKey, "has 100000 bytes; at most 1024 can be kept"),
        ("\ud83d" * 2_000, InvalidKey, "at most 1024"),
    ],
)
async def test_a_key_that_cannot_be_used_is_told_shortly(
    key: str, error: type[Exception], says: str
) -> None:
    async def never() -> str:
        pytest.fail("ran unprotected")

    with pytest.raises(error, match=says) as raised:
        await Consumer("loyalty", MemoryStore()).handle(Delivery(key=key), never, CODEC)
    told(raised.value).encode()
    assert len(told(raised.value)) < 2_000


async def _outage(bench: Bench) -> Handled[str]:
    bench.wire.down = True
    return await bench.handle()


async def _hangs(bench: Bench) -> Handled[str]:
    bench.effect.seconds = 10_000
    return await bench.handle()


async def _doubt(bench: Bench) -> Handled[str]:
    async def lost() -> str:
        raise TimeoutError

    async def work() -> str:
        return await current_attempt().step("charge", lost, deadline=1)

    return await bench.handle(work)


async def _no_time_left(bench: Bench) -> Handled[str]:
    async def work() -> str:
        await bench.clock.sleep(bench.policy.deadline - 5)
        return await current_attempt().step("charge", bench.effect, deadline=10)

    return await bench.handle(work)


@pytest.mark.parametrize(
    ("trouble", "error", "says"),
    [
        (_outage, StoreUnavailable, "the request was lost"),
        (_hangs, DeadlineExceeded, "did not finish within 300 s"),
        (_doubt, UncertainEffect, "effect of charge is not known; the next delivery settles it"),
        (_no_time_left, DeadlineExceeded, "'charge' is not begun"),
    ],
)
async def test_trouble_is_told_with_its_consumer_and_key(
    trouble: Callable[[Bench], Awaitable[Handled[str]]],
    error: type[IdempotencyError],
    says: str,
) -> None:
    bench = Bench(effects=Effects(policy=Quarantine()))
    with pytest.raises(error, match=says) as raised:
        await trouble(bench)
    assert f"while consumer charge_payment handled key {KEY!r}" in told(raised.value)


async def test_a_payload_is_in_no_exception() -> None:
    async def refuse() -> str:
        raise MalformedContent("the body has no order_id")

    delivery = a_delivery(body=b'{"card": "4111"}')
    with pytest.raises(MalformedContent) as raised:
        await Consumer("loyalty", MemoryStore()).handle(delivery, refuse, CODEC)
    assert "4111" not in told(raised.value)


async def test_a_version_guard_that_gives_up_says_what_was_in_its_way() -> None:
    class Crowded(MemoryStateStore):
        async def replace(self, id_: str, document: object, etag: str) -> bool:
            return False

    store = Crowded()
    await store.create("k", {"version": 1})

    guard = VersionGuard("levels", store)
    with pytest.raises(TransientFailure, match="levels, id 'k': others kept changing the document"):
        await guard.apply(State(id="k", version=2, document={}))


def test_a_service_that_refuses_the_identity_names_the_role_that_is_missing() -> None:
    answered: Any = CosmosHttpResponseError
    refused = answered(status_code=403, message="no")
    assert "Data Contributor, and let it through" in str(cosmos_access.unavailable(refused))
    no_token = ClientAuthenticationError("no token")
    assert "Storage Table Data Contributor" in str(table_access.unavailable(no_token))
    busy = answered(status_code=429, message="slow down")
    assert str(cosmos_access.unavailable(busy)) == (
        "Cosmos DB answered 429 (CosmosHttpResponseError)"
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Policy(lease=-1.0), "lease is -1.0: it must be a number of seconds above 0"),
        (lambda: Policy(memory=float("nan")), "memory is nan: it must be a number of 0 or more"),
        (lambda: Policy(lease=50.0), r"lease \(50 s\) must not exceed wait \(45 s\)"),
        (lambda: Policy(heartbeat=20.0), r"heartbeat \(20 s\) must be at most half the lease"),
        (lambda: Policy(deadline=500.0), r"wait x \(max delivery count - 1\) = 405 s"),
        (lambda: Policy(max_age=1e9), r"max_age \(1e\+09 s\) must be above 0 and not exceed"),
        (lambda: Consumer("", MemoryStore()), "needs a name"),
        (lambda: Effects(policy=Quarantine(), settle=0.0), "settle is 0.0"),
        (lambda: Rerun(provider_key_retention=-1.0), "provider_key_retention is -1.0"),
        (lambda: ResultCodec(set[Any] | dict[str, Any] | list[Any]), "such as a dataclass"),
    ],
)
def test_what_cannot_work_is_told_at_start_up_with_its_numbers(
    make: Callable[[], object], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


async def test_what_is_set_aside_says_what_can_be_done() -> None:
    bench = Bench()
    await bench.handle()
    mismatch = await bench.handle(fingerprint="json1:bb")
    assert "Another message needs a key of its own" in mismatch.description
    record = a_record(KEY, consumer="charge_payment", status=Status.QUARANTINED)
    assert "release or complete the record by hand" in of_quarantined(record).description
