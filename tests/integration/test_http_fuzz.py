"""Whatever comes over HTTP: no 500, no hang, no stuck record, and only answers that are described."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local.services.azurite import Azurite
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import eventually, order
from tests.triggers.webhook_sender import a_secret, signed_headers

pytestmark = pytest.mark.integration
SECRET = a_secret()
CHECKS = ",".join(
    ("not_a_server_error", "status_code_conformance", "content_type_conformance",
     "response_headers_conformance", "response_schema_conformance", "missing_required_header",
     "negative_data_rejection")
)  # fmt: skip
LONGEST = 10.0
"""Seconds for one answer."""


@pytest.fixture(scope="module")
def app(azurite: Azurite) -> Iterator[RunningApp]:
    with running_app(azurite, PAYMENT_WEBHOOK_SECRETS=SECRET) as running:
        yield running


def unfinished(app: RunningApp) -> list[str]:
    """The records in the store that no attempt has finished."""
    return [
        f"{entity['consumer']} {entity['key']!r}: {entity['status']}"
        for entity in records(app)
        if entity.get("status") not in ("completed", "failed")
    ]


def records(app: RunningApp) -> list[TableEntity]:
    """All that is in the table of records, which is made with the first of them."""
    name = app.environment["RECORDS_CONTAINER"]
    with TableClient.from_connection_string(app.azurite.connection_string, name) as table:
        try:
            return list(table.list_entities())
        except ResourceNotFoundError:
            return []


@pytest.fixture(autouse=True)
def nothing_is_left(app: RunningApp) -> Iterator[None]:
    """The store is scanned after each test: what is unfinished would answer 409 until its lease ends."""
    yield
    eventually(lambda: not unfinished(app), what=f"no unfinished record, but {unfinished(app)}")
    assert app.host.exit_code is None
    failed = [line for line in app.host.output.splitlines() if "(Failed" in line]
    assert not failed, failed[:5]


def fuzzed(app: RunningApp, folder: Path, *, examples: int, seconds: int | None = None) -> None:
    """Have schemathesis make requests from the app's own description, and check each answer with it.

    ``seconds`` are spent whole, beyond the examples; without them the examples are all.
    """
    # 503 with Retry-After is an answer of ours: not now; and any 4xx is a refusal
    expected = (
        '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "4xx", "503"]\n'
        '[checks.negative_data_rejection]\nexpected-statuses = ["4xx", "503"]\n'
    )
    (folder / "schemathesis.toml").write_text(expected)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run",
        f"{app.http.base_url}openapi.json", "--url", str(app.http.base_url).rstrip("/"),
        "--checks", CHECKS, "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing",
        "--request-timeout", str(LONGEST), "--seed", "7",
        "--suppress-health-check", "all", "--generation-database", "none", "--no-color",
        "--warnings", "off", *(["--max-time", str(seconds)] if seconds else []),
    ]  # fmt: skip
    told = subprocess.run(  # noqa: S603 - an installed tool, over the loopback
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=(seconds or 0) + 100,
    )
    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-2000:]
    assert "No issues found" in told.stdout, told.stdout[-3000:]


def test_every_answer_to_generated_requests_is_one_that_is_described(
    app: RunningApp, tmp_path: Path
) -> None:
    fuzzed(app, tmp_path, examples=8)
    assert records(app), "some requests got as far as the handler"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_answer_to_many_generated_requests_is_one_that_is_described(
    app: RunningApp, tmp_path: Path
) -> None:
    fuzzed(app, tmp_path, seconds=60, examples=200)


# What a schema does not think of: raw headers, keys and bodies.

HEADER_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))
KEYS = HEADER_TEXT | st.sampled_from(
    ['"', '""', '"a', 'a"b', "\\", " ", "k" * 256, '"k" ; x', "\u00e9"]
)
CONTENT_TYPES = st.sampled_from(
    ["application/json", "application/json; charset=utf-16", "multipart/form-data; boundary=x", "",
     "application/x-www-form-urlencoded", "application/cloudevents+json", "text/plain"]
)  # fmt: skip
BODIES = (
    st.binary(max_size=200)
    | st.sampled_from([b"", b"[" * 5000, b"\xff\xfe", b"1e999", b'{"a":' * 3000, b"null"])
    | st.builds(lambda: json.dumps(order()).encode())
)


def sendable(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {n.encode(): v.strip().encode("latin-1") for n, v in headers.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    key=st.none() | KEYS,
    body=BODIES,
    content_type=CONTENT_TYPES,
    others=st.dictionaries(
        st.sampled_from(["traceparent", "x-functions-key", "x-ms-client-principal", "accept",
                         "x-ms-client-principal-id", "content-encoding"]),
        HEADER_TEXT,
        max_size=2,
    ),
    query=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=8),
)  # fmt: skip
def test_any_key_with_any_body_is_answered_soon_and_the_same_again(
    app: RunningApp,
    key: str | None,
    body: bytes,
    content_type: str,
    others: dict[str, str],
    query: str,
) -> None:
    headers = sendable({**others, "content-type": content_type})
    if key is not None:
        headers[b"idempotency-key"] = (key + uuid.uuid4().hex[:4]).strip().encode("latin-1")
    if headers.get(b"content-encoding"):
        headers[b"content-encoding"] = b"identity"
    url = f"/orders?{query}"

    began = time.monotonic()
    first, again = (app.http.post(url, content=body, headers=headers) for _ in range(2))

    assert time.monotonic() - began < LONGEST
    assert first.status_code in {202, 400, 413}, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert ("idempotent-replayed" in again.headers) == (first.status_code == 202)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "timestamp", "data", "reference", "amount", "version", "x"]
                ),
                inner,
            )
        ),
        max_leaves=8,
    ),
    event_id=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60),
)
def test_any_signed_webhook_is_answered_soon(app: RunningApp, body: Any, event_id: str) -> None:
    content = json.dumps(body).encode()
    headers = signed_headers(content, event_id + uuid.uuid4().hex, secrets=(SECRET,))
    answer = app.http.post("/webhooks/payments", content=content, headers=headers, timeout=LONGEST)
    assert answer.status_code in {204, 400, 422, 503}, answer.text


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_a_method_that_is_not_served_is_not_found(app: RunningApp, method: str) -> None:
    assert app.http.request(method, "/orders").status_code == 404


@pytest.mark.parametrize("name", ["a%0Ab", "%20", "%F0%9F%A6%84", "a%25b", "%2E%2E", "x" * 1500])
def test_an_order_of_any_name_is_looked_for_by_the_app(app: RunningApp, name: str) -> None:
    answer = app.http.get(f"/orders/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/problem+json")


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_stuck(app: RunningApp) -> None:
    keys = [f"gone-{uuid.uuid4().hex}" for _ in range(10)]
    for key in keys:
        with pytest.raises(httpx.TimeoutException):
            app.http.post(
                "/orders", json=order(key), headers={"Idempotency-Key": key}, timeout=0.001
            )
    eventually(lambda: not unfinished(app), what="no unfinished record")
    for key in keys:
        content = order(key)
        answer = eventually(lambda c=content, k=key: _settled(app, c, k), what="an answer")  # type: ignore[misc]
        assert answer.status_code == 202


def _settled(app: RunningApp, content: dict[str, Any], key: str) -> httpx.Response | None:
    answer = app.http.post("/orders", json=content, headers={"Idempotency-Key": key})
    return None if answer.status_code == 409 else answer
