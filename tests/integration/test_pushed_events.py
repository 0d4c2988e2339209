"""What others push over HTTP, through the whole app: payments by signed webhook, status by CloudEvents."""

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import body_of, eventually, order
from tests.triggers.webhook_sender import a_secret, signed_headers

pytestmark = pytest.mark.integration
NEW, OLD = a_secret("n"), a_secret("o")
STRUCTURED = "application/cloudevents+json"


@pytest.fixture(scope="module", params=["table", "cosmos"])
def app(request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    azurite: Azurite = request.getfixturevalue("azurite")
    on_cosmos = request.param == "cosmos"
    cosmos: CosmosServer | None = request.getfixturevalue("cosmos") if on_cosmos else None
    with running_app(azurite, cosmos, PAYMENT_WEBHOOK_SECRETS=f"{NEW} {OLD}") as running:
        yield running


def placed(app: RunningApp, prefix: str = "ord") -> str:
    """The id of an order that the app has made; its total is 9.80 EUR."""
    content = order(f"{prefix}-{uuid.uuid4().hex[:8]}")
    app.send(ServiceBusMessage(body_of(content), message_id=content["order_id"]))
    eventually(lambda: kept(app, content["order_id"]), what="the order")
    return str(content["order_id"])


def kept(app: RunningApp, order_id: str) -> dict[str, Any] | None:
    answer = app.http.get(f"/orders/{order_id}")
    return answer.json() if answer.is_success else None


def charge(order_id: str, version: int = 1, kind: str = "succeeded", **changes: Any) -> bytes:
    data = {
        "charge_id": "ch-1",
        "reference": order_id,
        "amount": "9.80",
        "currency": "EUR",
        "version": version,
        **changes,
    }
    event = {"type": f"charge.{kind}", "timestamp": "2024-05-01T12:00:00Z", "data": data}
    return json.dumps(event).encode()


def push(
    app: RunningApp, body: bytes, event_id: str | None = None, secrets: tuple[str, ...] = (NEW,)
) -> httpx.Response:
    headers = signed_headers(body, event_id or f"msg-{uuid.uuid4().hex}", secrets=secrets)
    return app.http.post("/webhooks/payments", content=body, headers=headers)


def asked_for(app: RunningApp, order_id: str) -> int:
    """How often the order's fulfilment was asked for, as far as the broker let it pass."""
    return sum(f"fulfil_order '{order_id}': " in line for line in app.host.output.splitlines())


def fulfilled(app: RunningApp, order_id: str) -> dict[str, Any]:
    """The order, once it was asked for and is fulfilled: exactly once."""

    def look() -> dict[str, Any] | None:
        document = kept(app, order_id)
        return document if document and "fulfilment_status" in document else None

    document = eventually(look, what="a fulfilled order")
    eventually(lambda: asked_for(app, order_id) == 1, what="one outcome of its fulfilment")
    return document


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"].startswith("application/problem+json")
    return answer.status_code, answer.json()["type"].partition("#")[2]


# Payments


def test_given_an_order_when_its_charge_succeeds_then_it_is_paid_once_and_goes_to_fulfilment(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    before = kept(app, order_id)
    body = charge(order_id)

    answers = [push(app, body, f"msg-{order_id}") for _ in range(3)]

    assert [a.status_code for a in answers] == [204] * 3
    assert before is not None
    paid = {
        "payment_status": "paid",
        "payment_version": 1,
        "payment_changed_at": "2024-05-01T12:00:00+00:00",
        "charge_id": "ch-1",
    }
    document = fulfilled(app, order_id)
    changed = {name for name, value in document.items() if before.get(name) != value}
    assert {name: document[name] for name in paid} == paid
    assert changed - paid.keys() == {"fulfilment_status", "fulfilled_at", "warehouse", "version"}


def test_given_a_paid_order_when_its_message_is_redelivered_then_it_is_still_a_duplicate(
    app: RunningApp,
) -> None:
    content = order(f"again-{uuid.uuid4().hex[:8]}")
    order_id = content["order_id"]
    app.send(ServiceBusMessage(body_of(content), message_id=order_id))
    eventually(lambda: kept(app, order_id), what="the order")
    push(app, charge(order_id))
    paid = fulfilled(app, order_id)
    properties: dict[str | bytes, Any] = {"Deduplication-Key": order_id}

    app.send(ServiceBusMessage(body_of(content), message_id="2", application_properties=properties))

    eventually(lambda: f"'{order_id}': duplicate" in app.host.output, what="a duplicate")
    assert kept(app, order_id) == paid


def test_given_events_out_of_order_when_they_come_then_the_last_of_the_provider_stays(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    for version, kind in ((3, "refunded"), (1, "failed"), (2, "succeeded")):
        assert push(app, charge(order_id, version, kind)).status_code == 204

    document = kept(app, order_id)
    assert document is not None
    assert (document["payment_status"], document["payment_version"]) == ("refunded", 3)
    assert asked_for(app, order_id) == 0, "it was refunded before we heard that it was paid"


def test_given_an_event_that_comes_before_its_order_when_it_is_repeated_then_nothing_is_lost(
    app: RunningApp,
) -> None:
    content = order(f"late-{uuid.uuid4().hex[:8]}")
    body, event_id = charge(content["order_id"]), f"msg-{uuid.uuid4().hex}"

    early = push(app, body, event_id)
    app.send(ServiceBusMessage(body_of(content), message_id=content["order_id"]))
    eventually(lambda: kept(app, content["order_id"]), what="the order")
    repeated = push(app, body, event_id)

    assert problem_of(early) == (503, "try-again")
    assert early.headers["retry-after"] == "10"
    assert repeated.status_code == 204
    fulfilled(app, content["order_id"])


def test_given_a_charge_of_another_amount_when_it_succeeds_then_it_is_refused_for_good(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    body = charge(order_id, amount="0.01")

    answers = [push(app, body, f"msg-{order_id}") for _ in range(2)]

    assert [problem_of(a) for a in answers] == [(422, "refused")] * 2
    assert "AmountMismatch" in answers[1].text
    document = kept(app, order_id)
    assert document is not None
    assert "payment_status" not in document
    assert asked_for(app, order_id) == 0


def test_given_50_equal_webhooks_at_once_when_they_come_then_one_runs(app: RunningApp) -> None:
    order_id = placed(app)
    body = charge(order_id)

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: push(app, body, f"msg-{order_id}"), range(50)))

    assert {a.status_code for a in answers} <= {204, 409}
    assert any(a.status_code == 204 for a in answers)
    outcomes = [line for line in app.host.output.splitlines() if f"'msg-{order_id}'" in line]
    assert sum("processed" in line for line in outcomes) == 1
    fulfilled(app, order_id)


def test_given_a_secret_being_exchanged_when_either_signs_then_it_is_taken_and_no_other(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    assert push(app, charge(order_id, 1), secrets=(OLD,)).status_code == 204
    assert push(app, charge(order_id, 2), secrets=(NEW,)).status_code == 204
    stranger = push(app, charge(order_id, 3), secrets=(a_secret("x"),))

    assert problem_of(stranger) == (401, "signature-invalid")
    document = kept(app, order_id)
    assert document is not None
    assert document["payment_version"] == 2


def test_given_events_that_are_nothing_to_us_when_they_come_then_each_is_answered_by_its_kind(
    app: RunningApp,
) -> None:
    unknown = json.dumps(
        {"type": "customer.updated", "timestamp": "2024-05-01T12:00:00Z", "data": [1]}
    ).encode()

    assert push(app, unknown).status_code == 204, "a newer provider may send it"
    assert problem_of(push(app, b"{}")) == (400, "malformed")
    assert problem_of(push(app, charge("o", amount="no number"))) == (400, "malformed")
    assert problem_of(push(app, b" " * (64 * 1024 + 1))) == (413, "too-large")


# Order status


def status(order_id: str, version: int, name: str = "shipped", **changes: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"{order_id}.{version}",
        "source": "/shipping",
        "type": "OrderStatusChanged",
        "subject": order_id,
        "data": {"status": name, "version": version},
        **changes,
    }


def report(
    app: RunningApp, content: Any, content_type: str = STRUCTURED, **headers: str
) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.http.post(
        "/events/order-status", json=content, headers={"Content-Type": content_type, **sent}
    )


def test_given_an_order_when_its_status_comes_in_any_mode_then_the_newest_is_kept(
    app: RunningApp,
) -> None:
    order_id = placed(app)
    push(app, charge(order_id))

    structured = report(app, status(order_id, 2, "shipped"))
    overtaken = report(app, status(order_id, 1, "packed"))
    binary = report(
        app,
        {"status": "delivered", "version": 5},
        "application/json",
        ce_specversion="1.0",
        ce_id=f"{order_id}.5",
        ce_source="/shipping",
        ce_type="OrderStatusChanged",
        ce_subject=order_id,
    )
    event_grid = {
        "id": "eg-1",
        "topic": "/shipping",
        "subject": order_id,
        "eventType": "OrderStatusChanged",
        "eventTime": "2024-05-01T12:00:00Z",
        "dataVersion": "1",
        "data": {"status": "returned", "version": 6},
    }
    own_schema = report(app, [event_grid], "application/json", aeg_event_type="Notification")

    assert [a.status_code for a in (structured, overtaken, binary, own_schema)] == [
        204, 204, 204, 200,
    ]  # fmt: skip
    document = kept(app, order_id)
    assert document is not None
    assert (document["status"], document["status_version"]) == ("returned", 6)
    assert document["payment_status"] == "paid", "the other source's part is as it was"
    outcomes = [line for line in app.host.output.splitlines() if f"{order_id}." in line]
    assert sum("order_status_changed" in line and "stale" in line for line in outcomes) == 1


def test_given_a_batch_when_one_event_cannot_be_done_yet_then_the_answer_says_which(
    app: RunningApp,
) -> None:
    order_id, missing = placed(app), f"none-{uuid.uuid4().hex[:8]}"
    events = [
        status(order_id, 1, "packed"),
        status(missing, 1),
        status(order_id, 2, "evaporated"),
        status(order_id, 3, "shipped"),
    ]

    answer = report(app, events, "application/cloudevents-batch+json")

    assert problem_of(answer) == (503, "events-failed")
    assert answer.headers["retry-after"] == "10"
    told = [(each["index"], each["status"]) for each in answer.json()["events"]]
    assert told == [(0, 204), (1, 503), (2, 400), (3, 204)]
    document = kept(app, order_id)
    assert document is not None
    assert document["status"] == "shipped"


def test_given_a_sender_that_asks_first_when_it_is_known_then_it_may_send(app: RunningApp) -> None:
    path = "/events/order-status"
    allowed = app.http.options(path, headers={"WebHook-Request-Origin": "eventgrid.azure.net"})
    refused = app.http.options(path, headers={"WebHook-Request-Origin": "example.org"})
    code = [{"id": "1", "topic": "/t", "subject": "", "eventType": "x", "dataVersion": "1",
             "eventTime": "2024-05-01T12:00:00Z", "data": {"validationCode": "c-1"}}]  # fmt: skip
    validated = report(app, code, "application/json", aeg_event_type="SubscriptionValidation")

    assert allowed.status_code == 200
    assert allowed.headers["webhook-allowed-origin"] == "eventgrid.azure.net"
    assert problem_of(refused) == (403, "origin-unknown")
    assert validated.json() == {"validationResponse": "c-1"}
    assert problem_of(report(app, {}, "text/plain")) == (415, "format-unsupported")


def test_given_everything_above_when_all_is_done_then_the_host_still_runs(app: RunningApp) -> None:
    time.sleep(0.2)
    assert app.host.exit_code is None
    pushed = ("payment_webhook", "order_status_changed")
    failed = [
        line
        for line in app.host.output.splitlines()
        if "Failed" in line and any(name in line for name in pushed)
    ]
    assert not failed, failed[:5]
