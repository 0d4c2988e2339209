"""Dead letters that are re-sent are new messages for the same logical ones, and say so."""

from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from local.servicebus import Broker, Snapshot
from local.services.azurite import Azurite
from shared.idempotency import Status, canonical_json
from shared.idempotency.testing import a_record
from tests.operator.bench import Operator

pytestmark = pytest.mark.integration

BODY = b'{"order_id": "o-1"}'


@pytest.fixture
def operator(tmp_path: Path, azurite: Azurite, broker: Broker) -> Operator:
    return Operator(tmp_path, azurite, broker=broker)


def message(key: str, **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(fields.pop("body", BODY), message_id=key, **fields)


def active(operator: Operator, queue: str = "orders") -> list[Snapshot]:
    assert operator.broker
    return list(operator.broker.messages(queue))


def dead(operator: Operator) -> list[Snapshot]:
    return active(operator, "orders/$deadletterqueue")


def test_without_a_yes_it_is_only_shown_what_would_be_done(operator: Operator) -> None:
    operator.dead_letter(message("o-1"), message("o-2"), reason="PayloadMismatch")

    shown = operator("resend", "orders", "--dry-run", "--yes", "--json")
    unanswered = operator("resend", "orders", "--json")
    declined = operator("resend", "orders", answer="n\n")

    assert (shown.code, unanswered.code) == (0, 6)
    assert shown.told["dry_run"] is unanswered.told["dry_run"] is True
    assert [d["key"] for d in shown.told["dead_letters"]] == ["o-1", "o-2"]
    assert declined.code == 6
    assert "would be re-sent" in declined.out
    assert len(dead(operator)) == 2
    assert active(operator) == []


def test_a_re_send_has_another_message_id_and_the_same_key_age_and_content(
    operator: Operator,
) -> None:
    original = message(
        "o-1",
        application_properties={"tenant": "t-1"},
        correlation_id="c-1",
        content_type="application/json",
        subject="s-1",
    )
    operator.dead_letter(original, reason="TooOld")
    [letter] = operator("resend", "orders", "--json").told["dead_letters"]

    ended = operator("resend", "orders", "--yes", "--json")

    assert ended.told["dry_run"] is False
    [copy] = active(operator)
    assert copy.message_id != "o-1"
    assert copy.body == BODY
    properties = dict(copy.application_properties)
    first = properties.pop("First-Enqueued-Time")
    assert isinstance(first, str)
    assert properties == {"Deduplication-Key": "o-1", "Resend-Count": 1, "tenant": "t-1"}
    assert letter["enqueued_at"] is not None
    assert dead(operator) == []


def test_a_second_re_send_counts_on_and_keeps_the_first_time(operator: Operator) -> None:
    operator.dead_letter(message("o-1"), reason="TooOld")
    operator("resend", "orders", "--yes")
    [first] = active(operator)
    with_sdk_again(operator)

    operator("resend", "orders", "--yes", "--mode", "force")

    [second] = active(operator)
    before, after = first.application_properties, second.application_properties
    assert after["First-Enqueued-Time"] == before["First-Enqueued-Time"]
    assert (before["Resend-Count"], after["Resend-Count"]) == (1, 2)
    assert after["Deduplication-Key"] == "o-1"
    assert after["Forced-Resend"] == "true"
    assert second.message_id not in ("o-1", first.message_id)


def with_sdk_again(operator: Operator) -> None:
    """What was re-sent fails again."""
    from azure.servicebus import ServiceBusClient

    assert operator.broker
    with (
        ServiceBusClient.from_connection_string(operator.broker.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=2) as receiver,
    ):
        [received] = receiver.receive_messages(1)
        receiver.dead_letter_message(received, reason="TooOld")


def test_only_those_of_a_reason_and_of_a_key_are_re_sent(operator: Operator) -> None:
    operator.dead_letter(message("o-1"), reason="TooOld")
    operator.dead_letter(message("o-2"), message("o-3"), reason="StoreDown")

    operator("resend", "orders", "--reason", "StoreDown", "--key", "o-3", "--yes")

    assert [m.application_properties["Deduplication-Key"] for m in active(operator)] == ["o-3"]
    assert {m.message_id for m in dead(operator)} == {"o-1", "o-2"}


def test_no_more_than_the_limit_are_re_sent(operator: Operator) -> None:
    operator.dead_letter(*(message(f"o-{n}") for n in range(5)), reason="StoreDown")

    operator("resend", "orders", "--limit", "2", "--yes")

    assert (len(active(operator)), len(dead(operator))) == (2, 3)


def test_what_its_record_would_refuse_is_left_and_it_is_said_why(operator: Operator) -> None:
    consumer = {"consumer": "charge_payment", "fingerprint": canonical_json(BODY)}
    operator.put(
        a_record("done", status=Status.COMPLETED).replaced(**consumer),
        a_record("failed", status=Status.FAILED).replaced(**consumer),
        a_record("held", status=Status.QUARANTINED).replaced(**consumer),
        a_record("other", status=Status.COMPLETED).replaced(**consumer),
        a_record("open", status=Status.RELEASED).replaced(**consumer),
    )
    letters = [message(key) for key in ("done", "failed", "held", "open", "fresh")]
    operator.dead_letter(*letters, message("other", body=b'{"a": 2}'), reason="r")

    told = operator("resend", "orders", "--yes", "--json").told["dead_letters"]

    why = {each["key"]: each["why_not"] for each in told}
    assert why["open"] is why["fresh"] is None
    assert "would be a duplicate" in why["done"]
    assert "release the record" in why["failed"]
    assert "quarantined" in why["held"]
    assert "other content" in why["other"]
    keys = {m.application_properties["Deduplication-Key"] for m in active(operator)}
    assert keys == {"open", "fresh"}

    operator("resend", "orders", "--mode", "force", "--yes")
    assert len(active(operator)) == 6
    assert dead(operator) == []


def test_what_has_no_key_is_left(operator: Operator) -> None:
    nameless = ServiceBusMessage(BODY)
    nameless.message_id = None
    operator.dead_letter(nameless, reason="MissingKey")

    ended = operator("resend", "orders", "--mode", "force", "--yes", "--json")

    assert "no key" in ended.told["dead_letters"][0]["why_not"]
    assert len(dead(operator)) == 1


def test_messages_of_a_quarantine_queue_go_where_it_is_said(operator: Operator) -> None:
    assert operator.broker
    from azure.servicebus import ServiceBusClient

    properties: dict[str | bytes, Any] = {"DeadLetterReason": "PayloadMismatch"}
    with (
        ServiceBusClient.from_connection_string(operator.broker.connection_string) as client,
        client.get_queue_sender("quarantine") as sender,
    ):
        sender.send_messages(message("o-1", application_properties=properties))

    unsaid = operator("resend", "quarantine", "--quarantine-queue", "--yes")
    operator("resend", "quarantine", "--quarantine-queue", "--to", "orders", "--yes")

    assert unsaid.code == 2
    [copy] = active(operator)
    assert copy.application_properties["Deduplication-Key"] == "o-1"
    assert "DeadLetterReason" not in copy.application_properties
    assert active(operator, "quarantine") == []


def test_a_dead_letter_of_a_subscription_goes_to_its_topic(operator: Operator) -> None:
    from azure.servicebus import ServiceBusClient

    assert operator.broker
    with ServiceBusClient.from_connection_string(operator.broker.connection_string) as client:
        with client.get_topic_sender("order-events") as sender:
            sender.send_messages(message("e-1", session_id="o-1"))
        with client.get_subscription_receiver("order-events", "email", max_wait_time=2) as receiver:
            [received] = receiver.receive_messages(1)
            receiver.dead_letter_message(received, reason="r")

    operator("resend", "order-events/email", "--yes")

    [copy] = active(operator, "order-events/subscriptions/email")
    assert copy.application_properties["Deduplication-Key"] == "e-1"


def test_release_of_a_dead_lettered_message_frees_its_record_and_re_sends_it(
    operator: Operator,
) -> None:
    operator.put(a_record("o-1", status=Status.FAILED).replaced(consumer="charge_payment"))
    operator.dead_letter(message("o-1"), message("o-2"), reason="CardRefused")

    ended = operator("release", "charge_payment", "o-1", "--why", "new card", "--yes", "--json")

    assert ended.code == 0
    assert ended.told["record"]["status"] == "released"
    [copy] = active(operator)
    assert copy.application_properties["Deduplication-Key"] == "o-1"
    assert copy.application_properties["Forced-Resend"] == "true"
    assert [m.message_id for m in dead(operator)] == ["o-2"]


def test_release_of_a_message_without_a_record_just_re_sends_it(operator: Operator) -> None:
    operator.dead_letter(message("o-1"), reason="MalformedJson")

    ended = operator("release", "charge_payment", "o-1", "--why", "fixed", "--yes")

    assert ended.code == 0
    assert len(active(operator)) == 1


def test_an_entity_that_is_not_there_is_named(operator: Operator) -> None:
    ended = operator("resend", "no-such-queue")

    assert ended.code == 5
    assert "Service Bus" in ended.err
