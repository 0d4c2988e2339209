"""HTTP: no request, whatever is in it, breaks the adapter or shows in a log."""

import asyncio
import logging

import pytest
from azure.functions import HttpRequest, HttpResponse
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import (
    MissingKey,
    PermanentFailure,
)
from shared.idempotency.triggers import http
from tests.triggers.doubles import Told
from tests.triggers.http_route import URL, Route, problem_of, request


@given(
    key=st.none() | st.text(max_size=300),
    body=st.binary(max_size=50),
    headers=st.dictionaries(
        st.sampled_from(["traceparent", "x-ms-client-principal-id", "x-functions-key", "x"]),
        st.text(max_size=50),
    ),
    url=st.sampled_from([URL, "", "http://", "http://[", "//", "\udcff"]) | st.text(max_size=50),
    params=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_no_request_makes_the_adapter_raise(
    key: str | None, body: bytes, headers: dict[str, str], url: str, params: dict[str, str]
) -> None:
    async def ask() -> None:
        route = Route()
        sent = headers if key is None else {**headers, "Idempotency-Key": key}
        asked = HttpRequest("POST", url, headers=sent, params=params, body=body)
        assert (await route(asked)).status_code in {200, 400, 500}
        assert (await route(asked)).status_code in {200, 400, 500}
        assert route.ran <= 1

    asyncio.run(ask())


@given(key=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_any_key_is_the_same_bare_and_quoted_where_it_can_be_bare(key: str) -> None:
    key = key.strip()[:255]
    if not key:
        return
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert http.idempotency_key_of(request(f'"{escaped}"')) == key
    if "," not in key and not key.startswith('"'):
        assert http.idempotency_key_of(request(key)) == key


async def test_the_payload_is_in_no_log_and_in_no_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    route = Route()
    route.answers = [
        lambda: HttpResponse(status_code=500),
        lambda: PermanentFailure("OutOfStock"),
    ]
    answers = [
        await route(request(body=body))
        for body in (
            b'{"card": "s3cret"}',
            b'{"card": "s3cret"}',
            b'{"card": "s3cret!"}',
            b"s3cret",
        )
    ]
    assert [a.status_code for a in answers] == [500, 422, 422, 422]
    said = [
        caplog.text,
        *(str(a.get_body()) for a in answers),
        *(str(vars(r)) for r in caplog.records),
    ]
    assert "s3cret" not in "\n".join(said)


async def test_told_to_reject_it_is_a_400() -> None:
    assert problem_of(await Route(Told(MissingKey("no key")))(request())) == (400, "key-missing")
