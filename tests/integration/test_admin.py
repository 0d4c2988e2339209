"""Administration over HTTP: off unless wanted, behind the administrative key, as careful as the commands."""

from collections.abc import Iterator
from typing import Any

import azure.functions as func
import pytest
from azure.servicebus import ServiceBusMessage

from blueprints import admin
from bootstrap import build
from local.deployment import infra
from local.services.azurite import Azurite
from tests.integration.conftest import RunningApp, running_app
from tests.integration.messages import body_of, dead_letter, eventually, order

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=["table", "cosmos"])
def app(request: pytest.FixtureRequest, azurite: Azurite) -> Iterator[RunningApp]:
    cosmos = request.getfixturevalue("cosmos") if request.param == "cosmos" else None
    with running_app(azurite, cosmos, IDEMPOTENCY_ADMIN="true") as running:
        yield running


def placed(app: RunningApp) -> str:
    """An order that was made, over HTTP; its id is its deduplication key on the queue."""
    content = order()
    app.http.post("/orders", json=content, headers={"Idempotency-Key": content["order_id"]})
    path = f"/orders/{content['order_id']}"
    eventually(lambda: app.http.get(path).status_code == 200, what="the order")
    order_id: str = content["order_id"]
    return order_id


def asked(consumer: str, key: str) -> dict[str, str]:
    return {"consumer": consumer, "key": key, "who": "ada", "why": "a test"}


def test_it_is_off_by_default_and_asks_for_the_administrative_key() -> None:
    def registered(**changes: str) -> list[Any]:
        functions = func.FunctionApp()
        admin.register(functions, build({**infra.app_settings("table"), **changes}))
        return functions.get_functions()

    assert registered() == []
    wanted = registered(IDEMPOTENCY_ADMIN="true")
    triggers = [f.get_bindings()[0].get_dict_repr() for f in wanted]
    assert len(triggers) == 5
    assert {str(t["authLevel"].value).lower() for t in triggers} == {"admin"}


def test_records_of_both_placements_are_listed_shown_and_counted(app: RunningApp) -> None:
    order_id = placed(app)

    listed = app.http.get("/idempotency/records", params={"limit": 500}).json()
    of = {"consumer": "process_order", "key": order_id}
    shown = app.http.get("/idempotency/record", params=of).json()
    stats = app.http.get("/idempotency/stats").json()

    placements = {r["consumer"]: r["placement"] for r in listed["records"]}
    assert placements["submit_order"] == "dedicated"
    assert placements["process_order"] == "beside the data"
    assert (shown["status"], shown["audit"]) == ("completed", [])
    assert "customer_id" not in str(shown), "business data is not shown"
    counted = {t["consumer"]: t["records"] for t in stats["tallies"]}
    assert counted["process_order"] >= 1


def test_a_quarantined_key_stops_its_messages_until_it_is_completed(app: RunningApp) -> None:
    order_id = placed(app)

    answer = app.http.post("/idempotency/quarantine", json=asked("process_order", order_id))

    assert answer.status_code == 200, answer.text
    assert answer.json()["record"]["audit"][0]["who"] == "ada"
    body = body_of(order(order_id))
    again: dict[str | bytes, Any] = {"Deduplication-Key": order_id}
    app.send(
        ServiceBusMessage(
            body,
            message_id=f"q-{order_id}",
            application_properties={**again, "Forced-Resend": "true"},
        )
    )
    dead = dead_letter(app.broker, "orders", lambda m: m.message_id == f"q-{order_id}")
    assert dead.reason == "Quarantined"
    assert "ada" in (dead.description or "")


def test_release_re_sends_the_dead_letter_of_a_key(app: RunningApp) -> None:
    content = order()
    order_id = content["order_id"]
    bad = ServiceBusMessage(b"no order", message_id=order_id)
    app.send(bad)
    dead_letter(app.broker, "orders", lambda m: m.message_id == order_id)

    answer = app.http.post("/idempotency/release", json=asked("process_order", order_id))

    assert answer.status_code == 200, answer.text
    assert answer.json() == {"record": None, "resent": 1}
    again = dead_letter(
        app.broker,
        "orders",
        lambda m: m.application_properties.get("Deduplication-Key") == order_id,
    )
    assert again.application_properties["Resend-Count"] == 1


def test_what_the_record_does_not_allow_is_refused_with_the_reason(app: RunningApp) -> None:
    order_id = placed(app)

    answer = app.http.post("/idempotency/release", json=asked("process_order", order_id))

    assert answer.status_code == 409
    assert "committed together" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/idempotency/record?consumer=c&key=none", 404),
        ("GET", "/idempotency/records?status=strange", 400),
        ("GET", "/idempotency/records?limit=-1", 400),
        ("POST", "/idempotency/quarantine", 400),
    ],
)
def test_what_cannot_be_answered_is_a_problem(
    app: RunningApp, method: str, path: str, status: int
) -> None:
    answer = app.http.request(method, path, json={"consumer": "c"} if method == "POST" else None)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
