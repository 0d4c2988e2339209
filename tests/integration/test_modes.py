"""The app in its other modes: Azurite only, without the settlement binding, with the store down."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from local.host.process import HostProcess
from local.services.azurite import Azurite
from local.services.processes import ServiceError
from tests.integration.conftest import ROOT, running_app
from tests.integration.messages import body_of, eventually, order, storage_queue

pytestmark = pytest.mark.integration


def test_given_only_azurite_when_a_queue_message_or_a_request_comes_then_it_becomes_an_order(
    azurite: Azurite,
) -> None:
    with running_app(azurite, ServiceBusConnection="") as app:
        assert "process_order_from_storage_queue: queueTrigger" in app.host.output
        assert "process_order: serviceBusTrigger" not in app.host.output
        assert "ServiceBusConnection" not in app.host.output, "nothing to complain of"

        by_queue, by_http = order(), order()
        with storage_queue(azurite.connection_string, app.storage_queue) as queue:
            queue.send_message(json.dumps(by_queue))
        answer = app.http.post("/orders", json=by_http, headers={"Idempotency-Key": "only-azurite"})

        assert answer.status_code == 202
        for content in (by_queue, by_http):
            path = f"/orders/{content['order_id']}"
            eventually(lambda path=path: app.http.get(path).is_success, what="the order")  # type: ignore[misc]
        assert app.http.get("/health").json()["service_bus"] is False


def test_given_no_settlement_binding_when_content_differs_then_a_copy_with_the_reason_is_quarantined(
    azurite: Azurite,
) -> None:
    with running_app(azurite, SERVICEBUS_SETTLEMENT="quarantine-queue") as app:
        first, other = order("reused"), order("reused", currency="USD")
        properties: dict[str | bytes, Any] = {"Deduplication-Key": "reused"}

        app.send(ServiceBusMessage(body_of(first), message_id="reused"))
        eventually(lambda: app.broker.counts("orders").completed == 1, what="the first")
        app.send(
            ServiceBusMessage(body_of(first), message_id="2", application_properties=properties),
            ServiceBusMessage(body_of(other), message_id="3", application_properties=properties),
            ServiceBusMessage(b"no order", message_id="4"),
        )

        eventually(lambda: app.broker.counts("orders").completed == 4, what="all completed")
        quarantined = {m.message_id: m for m in app.broker.messages("quarantine")}
        assert set(quarantined) == {"3", "4"}
        assert quarantined["3"].body == body_of(other)
        reasons = {
            key: message.application_properties["DeadLetterReason"]
            for key, message in quarantined.items()
        }
        assert reasons == {"3": "PayloadMismatch", "4": "MalformedJson"}
        assert app.broker.messages("orders/$deadletterqueue") == ()


@pytest.mark.slow  # locks must end twice
def test_given_the_store_is_down_when_orders_come_then_nothing_runs_and_all_come_back_later(
    tmp_path: Path,
) -> None:
    with Azurite(location=tmp_path) as own, running_app(own) as app:
        app.send(ServiceBusMessage(body_of(order("before")), message_id="before"))
        eventually(lambda: app.http.get("/orders/before").is_success, what="the first order")
        own.stop()

        down = [order(f"down-{n}") for n in range(5)]
        app.send(*(ServiceBusMessage(body_of(o), message_id=o["order_id"]) for o in down))
        eventually(lambda: app.broker.counts("orders").locks_expired >= 5, what="five came back")
        refused = app.http.post("/orders", json=order(), headers={"Idempotency-Key": "down"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert app.broker.counts("orders").completed == 1

        own.start()
        for content in down:
            path = f"/orders/{content['order_id']}"
            eventually(
                lambda path=path: app.http.get(path).is_success,  # type: ignore[misc]
                within=40,
                what=path,
            )
        counts = app.broker.counts("orders")
        assert counts.dead == 0
        assert counts.abandoned == 0, "abandoning would burn the deliveries"


def test_given_a_wrong_setting_when_the_app_starts_then_the_message_names_it(
    azurite: Azurite,
) -> None:
    environment = {
        "AzureWebJobsStorage": azurite.connection_string,
        "IDEMPOTENCY_STORE": "tabel",
    }
    with (
        pytest.raises(ServiceError, match="IDEMPOTENCY_STORE is 'tabel'; it must be one of table"),
        HostProcess(ROOT, environment=environment),
    ):
        pass


def test_given_a_port_in_use_when_the_host_starts_then_the_message_names_it(
    azurite: Azurite,
) -> None:
    with running_app(azurite) as app:
        port = httpx.URL(app.host.base_url).port
        environment = {"AzureWebJobsStorage": azurite.connection_string}
        with (
            pytest.raises(ServiceError, match=str(port)),
            HostProcess(ROOT, environment=environment, port=port),
        ):
            pass
