"""Webhooks: signed, or refused before anything is looked up; each event once; told whether to repeat."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import azure.functions as func
import pytest
from azure.functions import HttpRequest, HttpResponse
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    ConfigurationError,
    Handled,
    MalformedContent,
    Outcome,
    PermanentFailure,
    Protected,
    Record,
    Stored,
    TransientFailure,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import webhooks
from shared.idempotency.triggers.standard_webhooks import StandardWebhooks
from tests.triggers.doubles import NAME, DownStore, Told, consumer_over
from tests.triggers.http_route import PATIENT, problem_of
from tests.triggers.webhook_sender import URL, a_secret, signed, signed_headers

NEW, OLD = a_secret("n"), a_secret("o")


class Endpoint:
    """A protected webhook; ``ran`` counts the executions, ``does`` says how the next ones end."""

    def __init__(self, consumer: Protected | None = None, **options: Any) -> None:
        self.ran = 0
        self.does: list[Callable[[], None]] = []
        self.store = MemoryStore()

        async def received(request: func.HttpRequest) -> None:
            self.ran += 1
            await asyncio.sleep(0)
            if self.does:
                self.does.pop(0)()

        verifier = StandardWebhooks([a_secret()])
        protected = consumer or consumer_over(self.store, PATIENT)
        self.function = webhooks.idempotent(
            protected, options.pop("verifier", verifier), **options
        )(received)

    async def __call__(self, asked: HttpRequest) -> HttpResponse:
        answer = await self.function(asked)
        assert isinstance(answer, HttpResponse)
        return answer


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def test_an_event_is_handled_once_and_its_repetitions_are_acknowledged(
    endpoint: Endpoint,
) -> None:
    answers = [await endpoint(signed()) for _ in range(3)]
    assert [a.status_code for a in answers] == [204] * 3
    assert endpoint.ran == 1


async def test_a_repetition_signed_anew_is_the_same_event(endpoint: Endpoint) -> None:
    """A sender signs each attempt at its own time: only id and body say what it is."""
    await endpoint(signed(age=timedelta(minutes=4)))
    assert (await endpoint(signed())).status_code == 204
    assert endpoint.ran == 1


async def test_another_id_is_another_event_whatever_its_body(endpoint: Endpoint) -> None:
    await endpoint(signed(event_id="msg-1"))
    await endpoint(signed(event_id="msg-2"))
    assert endpoint.ran == 2


async def test_an_id_with_another_body_is_refused_and_does_not_run(endpoint: Endpoint) -> None:
    await endpoint(signed(b'{"n": 1}'))
    assert problem_of(await endpoint(signed(b'{"n": 2}'))) == (422, "event-changed")
    assert problem_of(await endpoint(signed(b'{"n":1}'))) == (422, "event-changed")
    assert endpoint.ran == 1


# The signature


class UntouchedStore(MemoryStore):
    """A store that nobody may ask."""

    async def read(self, consumer: str, key: str) -> Stored | None:
        raise AssertionError("looked up")

    async def insert(self, record: Record) -> Stored | None:
        raise AssertionError("looked up")


def changed(**headers: str | None) -> HttpRequest:
    body = b'{"n": 1}'
    sent: dict[str, str | None] = {**signed_headers(body)}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(
        "POST", URL, headers={n: v for n, v in sent.items() if v is not None}, body=body
    )


UNSIGNED = {
    "no id": changed(webhook_id=None),
    "no timestamp": changed(webhook_timestamp=None),
    "no signature": changed(webhook_signature=None),
    "another id": changed(webhook_id="msg-2"),
    "another time": changed(
        webhook_timestamp=str(int(signed_headers(b"")["webhook-timestamp"]) - 1)
    ),
    "no time": changed(webhook_timestamp="soon"),
    "no number": changed(webhook_timestamp="nan"),
    "no signature of ours": changed(webhook_signature="v1,AAAA"),
    "an unknown version": changed(webhook_signature="v2,AAAA"),
    "no base64": changed(webhook_signature="v1,\u00e4"),
    "no form": changed(webhook_signature="x"),
    "another secret": signed(secrets=(a_secret("b"),)),
    "six minutes old": signed(age=timedelta(minutes=6)),
    "of the future": signed(age=timedelta(hours=-6)),  # made long before its test, maybe
    "another body": HttpRequest("POST", URL, headers=signed_headers(b"{}"), body=b"{} "),
    "no text": HttpRequest("POST", URL, headers=signed_headers(b"{}"), body=b"\xff"),
}


@pytest.mark.parametrize("name", UNSIGNED)
async def test_what_is_not_signed_is_a_401_before_anything_is_looked_up(name: str) -> None:
    endpoint = Endpoint(consumer_over(UntouchedStore()))
    answer = await endpoint(UNSIGNED[name])
    assert problem_of(answer) == (401, "signature-invalid")
    assert endpoint.ran == 0


async def test_a_stranger_learns_nothing_about_an_event_that_was_received(
    endpoint: Endpoint,
) -> None:
    before = await endpoint(signed(secrets=(a_secret("b"),)))
    await endpoint(signed())
    after = await endpoint(signed(secrets=(a_secret("b"),)))
    assert before.get_body() == after.get_body()


@pytest.mark.parametrize("secrets", [(OLD,), (NEW,), (OLD, NEW)], ids=["old", "new", "both"])
async def test_while_a_secret_is_exchanged_both_are_good(secrets: tuple[str, ...]) -> None:
    endpoint = Endpoint(verifier=StandardWebhooks([NEW, OLD]))
    assert (await endpoint(signed(secrets=secrets))).status_code == 204
    assert (await endpoint(signed(secrets=(a_secret(),)))).status_code == 401


async def test_after_the_exchange_the_old_secret_is_no_good() -> None:
    endpoint = Endpoint(verifier=StandardWebhooks([NEW]))
    assert (await endpoint(signed(secrets=(OLD,)))).status_code == 401


async def test_one_repeated_under_the_new_secret_is_still_the_same_event() -> None:
    endpoint = Endpoint(verifier=StandardWebhooks([NEW, OLD]))
    await endpoint(signed(secrets=(OLD,)))
    assert (await endpoint(signed(secrets=(NEW,)))).status_code == 204
    assert endpoint.ran == 1


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ([], "at least one"),
        ([NEW, ""], "secret 2 has 0 bytes"),
        (["whsec_A"], "secret 1 is not base64"),
        ([a_secret(size=23)], "has 23 bytes"),
        ([a_secret(size=65)], "has 65 bytes"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused_at_start_up(
    secrets: list[str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        StandardWebhooks(secrets)
    assert "whsec" not in str(refused.value)


async def test_a_body_that_is_too_large_is_refused_before_its_signature_is_computed() -> None:
    class Never:
        def verify(self, body: bytes, headers: dict[str, str]) -> str:
            raise AssertionError("computed")

    endpoint = Endpoint(verifier=Never(), largest_body=10)
    assert problem_of(await endpoint(signed(b"x" * 11))) == (413, "too-large")


@given(
    headers=st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "traceparent"]),
        st.text(max_size=40)
        | st.sampled_from(["v1,", "v1,AA==", "v1a,x v1,=", ",", "1e999", "-1"]),
    ),
    body=st.binary(max_size=30),
)
def test_no_request_makes_the_endpoint_raise_or_run(headers: dict[str, str], body: bytes) -> None:
    endpoint = Endpoint(consumer_over(UntouchedStore()))
    answer = asyncio.run(endpoint(HttpRequest("POST", URL, headers=headers, body=body)))
    assert answer.status_code == 401


# The answers


async def test_of_two_at_once_one_runs_and_the_other_comes_back(endpoint: Endpoint) -> None:
    answers = await asyncio.gather(endpoint(signed()), endpoint(signed()))
    assert sorted(a.status_code for a in answers) == [204, 409]
    [refused] = [a for a in answers if a.status_code == 409]
    assert problem_of(refused) == (409, "in-flight")
    assert int(refused.headers["Retry-After"]) >= 1
    assert endpoint.ran == 1


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (TransientFailure("s3cret"), 503, "try-again"),
        (LookupError("s3cret"), 500, "failed"),
        (MalformedContent("`order_id` is missing"), 400, "malformed"),
    ],
)
async def test_what_was_not_done_is_done_when_it_is_sent_again(
    endpoint: Endpoint, error: Exception, status: int, name: str
) -> None:
    endpoint.does = [raising(error)]
    refused = await endpoint(signed())
    assert problem_of(refused) == (status, name)
    assert b"s3cret" not in refused.get_body()
    assert (await endpoint(signed())).status_code == 204
    assert endpoint.ran == 2


async def test_a_refusal_for_good_is_the_same_for_every_repetition(endpoint: Endpoint) -> None:
    endpoint.does = [raising(PermanentFailure("AmountMismatch", "it is not the order's total"))]
    answers = [await endpoint(signed()) for _ in range(2)]
    assert [problem_of(a) for a in answers] == [(422, "refused")] * 2
    assert b"AmountMismatch: it is not the order's total" in answers[1].get_body()
    assert endpoint.ran == 1


async def test_while_the_store_is_down_it_is_a_503_and_nothing_runs() -> None:
    store = DownStore()
    endpoint = Endpoint(consumer_over(store))
    assert problem_of(await endpoint(signed())) == (503, "store-unavailable")
    assert endpoint.ran == 0
    store.down = False
    assert (await endpoint(signed())).status_code == 204


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("outcome", list(Outcome))
async def test_every_outcome_has_an_answer_and_only_what_is_done_is_acknowledged(
    outcome: Outcome, failed: bool
) -> None:
    told = Told(Handled(outcome=outcome, reason="Reason", description="because", failed=failed))
    answer = await Endpoint(told)(signed())
    done = outcome in {Outcome.PROCESSED, Outcome.STALE} or (
        outcome is Outcome.DUPLICATE and not failed
    )
    assert (answer.status_code == 204) == done
    if not done:
        assert problem_of(answer)


async def test_an_id_that_no_store_can_hold_is_a_400(endpoint: Endpoint) -> None:
    assert problem_of(await endpoint(signed(event_id="i" * 1025))) == (400, "key-invalid")


async def test_the_key_is_the_id_and_the_record_has_nothing_of_the_payload(
    endpoint: Endpoint,
) -> None:
    await endpoint(signed(b'{"card": "s3cret"}', "msg-7"))
    stored = await endpoint.store.read(NAME, "msg-7")
    assert stored is not None
    assert "s3cret" not in json.dumps(str(stored))
