"""Orders through the whole app: real worker, real SDKs, each store."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusMessage

from tests.integration.conftest import RunningApp
from tests.integration.messages import (
    body_of,
    dead_letter,
    eventually,
    order,
    storage_queue,
)

pytestmark = pytest.mark.integration


def message(content: dict[str, Any], **properties: Any) -> ServiceBusMessage:
    properties.setdefault("message_id", content["order_id"])
    return ServiceBusMessage(body_of(content), **properties)


def kept(app: RunningApp, order_id: str) -> dict[str, Any] | None:
    answer = app.http.get(f"/orders/{quote(order_id, safe='')}")
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def kept_eventually(app: RunningApp, order_id: str) -> dict[str, Any]:
    return eventually(lambda: kept(app, order_id), what=f"order {order_id!r}")


def settled(app: RunningApp) -> bool:
    counts = app.broker.counts("orders")
    return counts.active == counts.locked == 0


def test_given_an_order_when_it_is_sent_then_it_becomes_one_document(app: RunningApp) -> None:
    content = order()
    app.send(message(content))

    document = kept_eventually(app, content["order_id"])

    assert {name: document[name] for name in content} == content
    assert document["total"] == "9.80"


def test_given_an_order_when_it_is_sent_again_then_the_duplicate_is_acknowledged_and_changes_nothing(
    app: RunningApp,
) -> None:
    content = order()
    app.send(message(content))
    first = kept_eventually(app, content["order_id"])
    completed = app.broker.counts("orders").completed

    again = {"Deduplication-Key": content["order_id"]}
    app.send(message(content, message_id="another", application_properties=again))

    eventually(
        lambda: app.broker.counts("orders").completed > completed, what="the duplicate completed"
    )
    assert kept(app, content["order_id"]) == first


def test_given_a_used_message_id_when_it_comes_with_other_content_then_it_is_dead_lettered_with_the_fields(
    app: RunningApp,
) -> None:
    content = order()
    app.send(message(content))
    first = kept_eventually(app, content["order_id"])
    other = {**content, "customer_id": "cust-2", "currency": "USD"}

    properties = {"Deduplication-Key": content["order_id"]}
    app.send(message(other, message_id="reused", application_properties=properties))

    dead = dead_letter(app.broker, "orders", lambda m: m.body == body_of(other))
    assert dead.reason == "PayloadMismatch"
    assert dead.description is not None
    assert "customer_id, currency" in dead.description
    assert "cust-2" not in dead.description, "values of the payload are not evidence"
    assert kept(app, content["order_id"]) == first


BAD = {
    "empty body": (b"", "EmptyBody"),
    "no JSON": (b"\xff\xfe order", "MalformedJson"),
    "JSON but no object": (b"[1, 2]", "SchemaViolation"),
    "wrong schema": (b'{"order_id": "ORDER-ID"}', "SchemaViolation"),
    "wrong type": (body_of({**order("ORDER-ID"), "lines": "none"}), "SchemaViolation"),
    "negative price": (
        body_of(order("ORDER-ID", lines=[{"sku": "a", "quantity": 1, "unit_price": "-1"}])),
        "SchemaViolation",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_given_bad_content_when_it_is_delivered_then_it_is_dead_lettered_at_once_with_the_problem(
    app: RunningApp, name: str
) -> None:
    body, reason = BAD[name]
    message_id = f"bad-{name}-{time.monotonic_ns()}"

    app.send(ServiceBusMessage(body, message_id=message_id))

    dead = dead_letter(app.broker, "orders", lambda m: m.message_id == message_id)
    assert dead.reason == reason
    assert dead.description
    assert dead.delivery_count <= 1, "no retry can save it"


def test_given_no_message_id_when_it_is_delivered_then_it_is_dead_lettered_as_missing_key(
    app: RunningApp,
) -> None:
    content = order()

    nameless = ServiceBusMessage(body_of(content))
    nameless.message_id = None  # the SDK makes one up
    app.send(nameless)

    dead = dead_letter(app.broker, "orders", lambda m: m.body == body_of(content))
    assert dead.reason == "MissingKey"
    assert "MessageId" in (dead.description or "")
    assert kept(app, content["order_id"]) is None, "it must not run unprotected"


HOSTILE = [
    "../../etc/passwd",
    "a#b?c%d",
    "nul\x00inside",
    "\U0001f9fe emoji",
    "x" * 128,
    "trailing ",
]


@pytest.mark.parametrize("prefix", HOSTILE)
def test_given_a_hostile_order_id_when_it_is_delivered_then_it_is_processed_under_exactly_that_id(
    app: RunningApp, prefix: str
) -> None:
    order_id = (prefix + str(time.monotonic_ns()))[-128:]
    content = order(order_id)
    completed = app.broker.counts("orders").completed

    app.send(message(content))

    eventually(lambda: app.broker.counts("orders").completed > completed, what="it completed")
    if "/" not in order_id and "\x00" not in order_id:  # a URL's path cannot carry these two
        assert kept_eventually(app, order_id)["order_id"] == order_id


def test_given_a_message_of_nearly_256_kb_when_it_is_delivered_then_it_is_processed_or_dead_lettered(
    app: RunningApp,
) -> None:
    lines = [
        {"sku": f"sku-{n:06d}-{'x' * 60}", "quantity": 1, "unit_price": "1.00"} for n in range(2000)
    ]
    content = order(lines=lines)
    assert 200_000 < len(body_of(content)) < 256_000

    app.send(message(content))

    def ending() -> str | None:
        if kept(app, content["order_id"]):
            return "processed"
        dead = app.broker.messages("orders/$deadletterqueue")
        return next((m.reason for m in dead if m.message_id == content["order_id"]), None)

    # Table Storage keeps 64 KiB in a property, Cosmos DB 2 MB in a document
    assert eventually(ending, what="an ending") in ("processed", "ContentTooLarge")


def test_given_50_copies_at_once_when_they_are_delivered_then_there_is_one_effect(
    app: RunningApp,
) -> None:
    content = order()
    copies = [
        message(
            content,
            message_id=f"copy-{n}-{content['order_id']}",
            application_properties={"Deduplication-Key": content["order_id"]},
        )
        for n in range(50)
    ]
    completed = app.broker.counts("orders").completed

    app.send(*copies)

    eventually(
        lambda: app.broker.counts("orders").completed >= completed + 50, what="all 50 completed"
    )
    outcomes = [line for line in app.host.output.splitlines() if f"'{content['order_id']}'" in line]
    assert sum("processed" in line for line in outcomes) == 1
    assert sum("duplicate" in line for line in outcomes) == 49


def test_given_a_storage_queue_message_when_it_is_sent_then_the_same_handler_makes_the_order(
    app: RunningApp,
) -> None:
    content = order()
    queue = storage_queue(app.azurite.connection_string, app.storage_queue)

    with queue:
        queue.send_message(json.dumps(content))
        kept_eventually(app, content["order_id"])
        queue.send_message(json.dumps(content))
        eventually(
            lambda: f"'{content['order_id']}': duplicate" in app.host.output, what="a duplicate"
        )


def test_given_a_bad_storage_queue_message_when_it_is_sent_then_the_poison_queue_says_why(
    app: RunningApp,
) -> None:
    poison = storage_queue(app.azurite.connection_string, f"{app.storage_queue}-poison")
    with storage_queue(app.azurite.connection_string, app.storage_queue) as queue, poison:
        queue.send_message("no order at all")

        def envelope() -> dict[str, Any] | None:
            try:
                messages = list(poison.peek_messages(max_messages=32))
            except Exception:  # noqa: BLE001 - the queue is made with its first message
                return None
            found = (json.loads(m.content) for m in messages)
            return next((e for e in found if e.get("text") == "no order at all"), None)

        assert eventually(envelope, what="a poison message")["reason"] == "MalformedJson"


def test_given_an_http_order_when_it_is_repeated_then_the_recorded_answer_comes_and_one_order_is_made(
    app: RunningApp,
) -> None:
    content = order()
    headers = {"Idempotency-Key": f'"{content["order_id"]}-key"'}

    first = app.http.post("/orders", json=content, headers=headers)
    again = app.http.post("/orders", json=content, headers=headers)

    assert first.status_code == again.status_code == 202
    assert first.headers["location"] == f"/api/orders/{content['order_id']}"
    assert again.headers["location"] == first.headers["location"]
    assert again.content == first.content
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    kept_eventually(app, content["order_id"])


def test_given_an_accepted_order_id_when_it_is_submitted_with_other_content_then_it_does_not_vanish(
    app: RunningApp,
) -> None:
    """The broker's own detection would drop it without a trace, if both had one MessageId."""
    content = order()
    other = {**content, "customer_id": "cust-2"}

    for number, each in enumerate((content, other)):
        headers = {"Idempotency-Key": f"{content['order_id']}-{number}"}
        assert app.http.post("/orders", json=each, headers=headers).status_code == 202

    dead = dead_letter(app.broker, "orders", lambda m: content["order_id"].encode() in m.body)
    assert dead.reason == "PayloadMismatch"
    assert "customer_id" in (dead.description or "")


def test_given_an_order_that_the_store_cannot_hold_when_it_is_submitted_then_it_is_not_accepted(
    app: RunningApp,
) -> None:
    lines = [{"sku": f"sku-{n:06d}", "quantity": 1, "unit_price": "1.00"} for n in range(3000)]
    content = order(lines=lines)

    answer = app.http.post("/orders", json=content, headers={"Idempotency-Key": "large"})

    if answer.status_code == 202:
        assert len(kept_eventually(app, content["order_id"])["lines"]) == 3000
    else:
        assert answer.status_code == 413
        assert app.http.get("/health").json()["store"] == "table"


def test_given_no_order_id_when_it_is_submitted_then_the_id_follows_from_the_key(
    app: RunningApp,
) -> None:
    content = order()
    del content["order_id"]
    headers = {"Idempotency-Key": f"derived-{time.monotonic_ns()}"}

    answer = app.http.post("/orders", json=content, headers=headers)

    assert answer.status_code == 202
    assert kept_eventually(app, answer.json()["order_id"])["customer_id"]


def test_given_a_refused_request_when_it_is_sent_then_a_problem_names_what_is_wrong(
    app: RunningApp,
) -> None:
    content = order()
    key = {"Idempotency-Key": f"k-{time.monotonic_ns()}"}

    no_key = app.http.post("/orders", json=content)
    bad_json = app.http.post("/orders", content=b"{", headers=key)
    bad_schema = app.http.post("/orders", json={**content, "currency": "euro"}, headers=key)
    accepted = app.http.post("/orders", json=content, headers=key)
    reused = app.http.post("/orders", json={**content, "currency": "USD"}, headers=key)
    missing = app.http.get("/orders/none-such")

    problems = [no_key, bad_json, bad_schema, reused, missing]
    assert [p.status_code for p in problems] == [400, 400, 400, 422, 404]
    assert accepted.status_code == 202, "a refusal before any effect leaves the key free"
    for answer in problems:
        assert answer.headers["content-type"].startswith("application/problem+json")
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert "Traceback" not in answer.text
        assert problem["type"].partition("#")[2] in app.http.get("/problems").text


def test_given_50_equal_requests_at_once_when_they_are_sent_then_one_runs_and_none_contradicts_it(
    app: RunningApp,
) -> None:
    content = order()
    headers = {"Idempotency-Key": f"at-once-{content['order_id']}"}

    with ThreadPoolExecutor(50) as pool:
        answers = list(
            pool.map(lambda _: app.http.post("/orders", json=content, headers=headers), range(50))
        )

    accepted = [a for a in answers if a.status_code == 202]
    assert {a.status_code for a in answers} <= {202, 409}
    assert sum("idempotent-replayed" not in a.headers for a in accepted) == 1
    assert len({a.content for a in accepted}) == 1
    assert all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status_code == 409)


def test_given_the_running_app_when_its_health_is_asked_then_it_tells_settings_and_no_secret(
    app: RunningApp,
) -> None:
    health = app.http.get("/health")

    assert health.status_code == 200
    assert health.json()["service_bus"] is True
    assert "AccountKey" not in health.text
    assert "SharedAccessKey" not in health.text
    assert app.http.get("/health/store").json()["status"] == "ok"


def test_given_everything_above_when_all_is_settled_then_nothing_loops(app: RunningApp) -> None:
    eventually(lambda: settled(app), what="an idle queue")
    time.sleep(0.5)
    assert settled(app)
    assert app.host.exit_code is None, "no input has ended the host"
