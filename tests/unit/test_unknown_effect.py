"""What an exception tells about the effect of the call that raised it; and downstream keys."""

import asyncio
import subprocess
import sys
import uuid

import httpx
import pytest

from shared.idempotency import (
    Attempt,
    Effects,
    MalformedContent,
    Outcome,
    PermanentFailure,
    Rerun,
    StoreUnavailable,
    TransientFailure,
    UncertainEffect,
    current_attempt,
    downstream_uuid,
    send_headers,
    set_headers,
    unknown_effect,
)
from shared.idempotency.effects import refused_for_good
from shared.idempotency.testing import HOSTILE_KEYS
from tests.unit.doubles import Bench

REQUEST = httpx.Request("POST", "http://provider/v1/charges")


def answered(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(status))


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("never there"),
        httpx.PoolTimeout("all in use"),
        httpx.UnsupportedProtocol("what"),
        httpx.InvalidURL("what"),
        *(answered(status) for status in (400, 401, 402, 403, 404, 422, 429)),
        TransientFailure("not now"),
        PermanentFailure("Never"),
        MalformedContent("no charge"),
    ],
    ids=repr,
)
def test_definite_refusals_did_nothing(error: Exception) -> None:
    assert not unknown_effect(error)


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadTimeout("no answer"),
        httpx.WriteTimeout("half sent"),
        httpx.ReadError("reset"),
        httpx.WriteError("half sent"),
        httpx.CloseError("what"),
        httpx.RemoteProtocolError("disconnected"),
        httpx.DecodingError("no JSON"),
        *(answered(status) for status in (302, 408, 409, 425, 500, 502, 503, 504)),
        TimeoutError(),
        ConnectionResetError(),
        asyncio.CancelledError(),
        KeyError("id"),
        StoreUnavailable("down"),
        UncertainEffect("of a step within"),
    ],
    ids=repr,
)
def test_whatever_is_not_known_to_be_harmless_is_unknown(error: BaseException) -> None:
    assert unknown_effect(error)


@pytest.mark.parametrize(
    ("error", "is_for_good"),
    [
        (PermanentFailure("CardDeclined"), True),
        (answered(402), True),
        (answered(429), False),
        (answered(503), False),
        (httpx.ConnectError("refused"), False),
        (TransientFailure("not now"), False),
    ],
    ids=repr,
)
def test_not_now_is_no_refusal_for_good(error: Exception, is_for_good: bool) -> None:
    assert refused_for_good(error) is is_for_good


@pytest.mark.parametrize("where", ["consumer", "step"])
async def test_what_an_exception_tells_can_be_stated_per_consumer_and_per_step(where: str) -> None:
    def harmless(error: BaseException) -> bool:
        return not isinstance(error, KeyError)

    policy = Rerun(provider_key_retention=60)
    effects = Effects(policy=policy, unknown_effect=harmless if where == "consumer" else None)
    bench = Bench(effects=effects)

    async def call() -> None:
        raise KeyError

    async def work() -> str:
        per_step = harmless if where == "step" else None
        await current_attempt().step("charge", call, deadline=5, unknown_effect=per_step)
        return "never"

    with pytest.raises(KeyError):
        await bench.handle(work)
    assert await bench.stored() is None


def test_the_core_works_without_httpx_and_without_opentelemetry() -> None:
    """Neither is imported by the module; where nobody imported httpx, no error can be its."""
    program = (
        "import sys; import shared.idempotency as m; assert m.unknown_effect(ValueError());"
        "assert 'httpx' not in sys.modules and 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 - our own text


# -- downstream keys


def an_attempt(**fields: object) -> Attempt:
    given = {"consumer": "charge_payment", "key": "order-1", "owner": "o", "number": 1}
    return Attempt(**{**given, "deadline": 0.0, **fields})  # type: ignore[arg-type]


def test_a_downstream_key_is_the_same_in_every_attempt_and_release() -> None:
    assert an_attempt().downstream_key("charge") == "8dc4d213-cc0f-8283-9499-eb7e1ec4f691"
    assert an_attempt(number=7, owner="x").downstream_key("charge") == an_attempt().downstream_key(
        "charge"
    )


def test_a_downstream_key_differs_by_consumer_key_and_step_however_they_are_cut() -> None:
    keys = {
        downstream_uuid(*parts)
        for parts in [
            ("a", "b", "c"),
            ("b", "a", "c"),
            ("ab", "c", ""),
            ("a", "bc", ""),
            ("a", "b1:c", ""),
            ("A", "b", "c"),
            *(("charge_payment", key, "charge") for key in HOSTILE_KEYS),
        ]
    }
    assert len(keys) == 6 + len(HOSTILE_KEYS)


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=ascii)
def test_a_downstream_key_is_safe_as_a_header_and_is_a_uuid(key: str) -> None:
    text = an_attempt(key=key).downstream_key("charge")
    assert uuid.UUID(text).version == 8
    assert uuid.UUID(text).variant == uuid.RFC_4122
    assert httpx.Headers({"Idempotency-Key": text})["Idempotency-Key"] == text


TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.mark.parametrize("kind", ["async hook", "sync hook", "auth"])
async def test_every_request_of_a_step_carries_its_key_and_the_trace(kind: str) -> None:
    seen: list[httpx.Headers] = []

    def provider(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(201)

    transport = httpx.MockTransport(provider)
    bench = Bench(effects=Effects(policy=Rerun(provider_key_retention=60)))

    async def charge() -> None:
        hooks = {"request": [send_headers]}
        async with httpx.AsyncClient(transport=transport, event_hooks=hooks) as client:
            await client.post("http://provider/v1/charges")

    def charge_blocking() -> None:
        hooks = {"request": [set_headers]} if kind == "sync hook" else {}
        auth = set_headers if kind == "auth" else None
        with httpx.Client(transport=transport, event_hooks=hooks, auth=auth) as client:
            client.post("http://provider/v1/charges")

    async def work() -> str:
        attempt = current_attempt()
        call = charge if kind == "async hook" else charge_blocking
        await attempt.step("charge", call, deadline=5)
        await charge()  # outside a step there is no key to send
        return attempt.downstream_key("charge")

    handled = await bench.handle(work, trace_parent=TRACE)
    assert handled.outcome is Outcome.PROCESSED
    assert seen[0]["Idempotency-Key"] == handled.result
    assert seen[0]["traceparent"] == TRACE
    assert "Idempotency-Key" not in seen[1]


def test_a_header_that_the_caller_set_stays() -> None:
    from shared.idempotency.downstream import StepCall, enter_call

    def sent() -> httpx.Headers:
        enter_call(StepCall("ours", TRACE))
        request = httpx.Request("POST", "http://p/", headers={"Idempotency-Key": "the caller's"})
        return set_headers(request).headers  # type: ignore[no-any-return]

    import contextvars

    headers = contextvars.copy_context().run(sent)
    assert headers["Idempotency-Key"] == "the caller's"
    assert headers["traceparent"] == TRACE
