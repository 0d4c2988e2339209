"""A charge, its key, its ledger: what holds when nothing goes wrong on the way."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from local.payments import PaymentProvider
from tests.local.payments.calls import PATIENCE, Caller, code, order


def test_given_a_charge_then_the_answer_and_the_ledger_say_the_same(
    provider: PaymentProvider, caller: Caller
) -> None:
    response = caller.charge("k-1")
    assert response.status_code == 201
    assert "Idempotent-Replayed" not in response.headers
    [charge] = provider.ledger
    assert response.json() == {
        "charge_id": charge.charge_id,
        "status": "succeeded",
        "customer_id": "c-1",
        "amount": "12.50",
        "currency": "EUR",
        "reference": "o-7",
        "idempotency_key": "k-1",
        "charged_at": charge.charged_at.isoformat(),
    }
    assert (charge.key, charge.amount) == ("k-1", Decimal("12.50"))
    assert abs(charge.charged_at - datetime.now(UTC)) < timedelta(seconds=PATIENCE)
    assert provider.charges("o-7") == (charge,)
    assert provider.charges("o-8") == ()


def test_given_the_same_key_again_then_the_same_answer_is_replayed_and_nothing_charged(
    provider: PaymentProvider, caller: Caller
) -> None:
    first, second = caller.charge("k-1"), caller.charge("k-1")
    assert second.status_code == 201
    assert second.json() == first.json()
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(provider.ledger) == 1


def test_given_no_key_then_each_request_charges(provider: PaymentProvider, caller: Caller) -> None:
    caller.charge()
    caller.charge()
    caller.charge(reference="o-8")
    assert [charge.key for charge in provider.charges("o-7")] == [None, None]
    assert provider.charged_twice() == ("o-7",)


@pytest.mark.parametrize(
    "change",
    [{"amount": "12.51"}, {"currency": "USD"}, {"customer_id": "c-2"}, {"reference": "o-8"}],
)
def test_given_a_key_with_another_body_then_it_is_refused(
    provider: PaymentProvider, caller: Caller, change: dict[str, str]
) -> None:
    caller.charge("k-1")
    response = caller.charge("k-1", **change)
    assert (response.status_code, code(response)) == (422, "key_reused")
    assert len(provider.ledger) == 1


def test_given_fifty_equal_requests_at_once_with_one_key_then_one_charge(
    provider: PaymentProvider, caller: Caller
) -> None:
    with ThreadPoolExecutor(50) as callers:
        responses = list(callers.map(lambda _: caller.charge("k-1"), range(50)))
    assert {response.status_code for response in responses} == {201}
    assert len({response.json()["charge_id"] for response in responses}) == 1
    assert sum("Idempotent-Replayed" in response.headers for response in responses) == 49
    assert len(provider.ledger) == 1


def test_given_fifty_equal_requests_during_a_slow_one_then_one_charge_and_the_rest_wait(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.slow(60)
    with ThreadPoolExecutor(50) as callers:
        answers = [callers.submit(caller.charge, "k-1") for _ in range(50)]
        refused = list(itertools.islice(as_completed(answers, PATIENCE), 49))
        assert [answer.result().status_code for answer in refused] == [409] * 49
        assert provider.ledger == ()
        provider.clock.advance(60)
    [last] = set(answers) - set(refused)
    assert last.result().status_code == 201
    assert len(provider.ledger) == 1


def test_given_a_key_older_than_its_retention_then_it_charges_again() -> None:
    with PaymentProvider(key_retention=timedelta(hours=1)) as provider:
        caller = Caller(provider)
        with caller.http:
            caller.charge("k-1")
            provider.clock.advance(3590)
            assert caller.charge("k-1").headers["Idempotent-Replayed"] == "true"
            provider.clock.advance(10)
            assert "Idempotent-Replayed" not in caller.charge("k-1").headers
        first, second = provider.charges("o-7")
        assert second.charged_at - first.charged_at >= timedelta(hours=1)


def test_given_a_provider_without_retention_then_keys_are_not_honoured() -> None:
    with PaymentProvider(key_retention=timedelta(0)) as provider, ThreadPoolExecutor(1) as other:
        caller = Caller(provider)
        with caller.http:
            provider.faults.slow(60)
            slow = other.submit(caller.charge, "k-1")
            provider.wait_for(lambda p: p.faults.struck["slow"], PATIENCE)
            assert [caller.charge("k-1").status_code for _ in range(2)] == [201, 201]
            provider.clock.advance(60)
            assert slow.result().status_code == 201
        assert len(provider.charges("o-7")) == 3


def test_given_forgotten_keys_then_a_repeat_charges_but_a_search_still_finds_the_first(
    provider: PaymentProvider, caller: Caller
) -> None:
    first = caller.charge("k-1").json()
    provider.forget_keys()
    assert caller.search(idempotency_key="k-1").json() == first
    assert caller.charge("k-1").json()["charge_id"] != first["charge_id"]
    assert provider.charged_twice() == ("o-7",)


def test_given_a_charge_then_it_is_found_by_key_reference_and_id(caller: Caller) -> None:
    charge = caller.charge("k/1 ?&#").json()
    assert caller.search(idempotency_key="k/1 ?&#").json() == charge
    assert caller.search(reference="o-7").json() == charge
    assert caller.http.get(f"/v1/charges/{charge['charge_id']}").json() == charge


def test_given_no_charge_then_nothing_is_found(caller: Caller) -> None:
    caller.charge("k-1")
    misses = [
        caller.search(idempotency_key="k-2"),
        caller.search(reference="o-8"),
        caller.http.get("/v1/charges/ch_0"),
    ]
    assert [(miss.status_code, code(miss)) for miss in misses] == [(404, "not_found")] * 3


@pytest.mark.parametrize(
    "question", [{}, {"reference": "o-7", "idempotency_key": "k-1"}, {"x": ""}]
)
def test_given_a_search_for_nothing_or_for_two_things_then_it_is_invalid(
    caller: Caller, question: dict[str, str]
) -> None:
    response = caller.search(**question)
    assert (response.status_code, code(response)) == (400, "invalid_request")


@pytest.mark.parametrize("who", [{"customer_id": "c-9"}, {"reference": "o-9"}])
def test_given_a_customer_or_reference_marked_declined_then_402_and_a_repeat_hears_it_again(
    provider: PaymentProvider, caller: Caller, who: dict[str, str]
) -> None:
    for name in who.values():
        provider.decline(name)
    first, second = caller.charge("k-1", **who), caller.charge("k-1", **who)
    assert (first.status_code, code(first)) == (402, "card_declined")
    assert (second.status_code, second.json()) == (402, first.json())
    assert second.headers["Idempotent-Replayed"] == "true"
    assert provider.ledger == ()
    assert caller.charge("k-2").status_code == 201


def test_given_a_name_that_begins_with_declined_then_402_without_a_mark(caller: Caller) -> None:
    assert caller.charge(customer_id="declined-1").status_code == 402


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps(order(amount=12.5)).encode(),
        json.dumps(order(tip="1")).encode(),
        *(
            json.dumps(order(amount=amount)).encode()
            for amount in ("", "0", "0.00", "-1", "1e3", "NaN", "1,5", "1.00000", "٣", "1\n")
        ),
        *(json.dumps(order(currency=currency)).encode() for currency in ("", "eur", "EURO")),
        *(json.dumps(order(**{name: ""})).encode() for name in ("customer_id", "reference")),
        *(
            json.dumps({key: value for key, value in order().items() if key != missing}).encode()
            for missing in order()
        ),
    ],
)
def test_given_a_body_that_is_no_charge_then_it_is_invalid_and_nothing_charged(
    provider: PaymentProvider, caller: Caller, body: bytes
) -> None:
    response = caller.send(body)
    assert (response.status_code, code(response)) == (400, "invalid_request")
    assert provider.ledger == ()


@pytest.mark.parametrize("key", ["", "k" * 256, "k\t1"])
def test_given_a_key_that_is_none_then_it_is_invalid_and_nothing_charged(
    provider: PaymentProvider, caller: Caller, key: str
) -> None:
    response = caller.charge(key)
    assert (response.status_code, code(response)) == (400, "invalid_request")
    assert provider.ledger == ()


def test_given_an_address_that_is_none_then_the_refusal_is_plain(caller: Caller) -> None:
    assert code(caller.http.get("/v2/charges")) == "refused"


def test_given_charges_then_a_person_reads_the_ledger_as_json(
    provider: PaymentProvider, caller: Caller
) -> None:
    receipts = [caller.charge().json() for _ in range(2)]
    provider.faults.outage()  # the truth can be read all the same
    assert caller.http.get("/ledger").json() == {
        "charged": 2,
        "charged_twice": ["o-7"],
        "charges": receipts,
        "settlements": [],
    }


def test_given_a_settlement_again_then_it_is_noted_once_and_found_by_its_key(
    provider: PaymentProvider, caller: Caller
) -> None:
    body = {"reference": "2026-03-01/EUR", "amounts": {"EUR": "12.50"}, "orders": 2}
    key = {"Idempotency-Key": "k-1"}
    first, again = (caller.http.post("/v1/settlements", json=body, headers=key) for _ in range(2))

    assert (first.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.json() == first.json()
    [settlement] = provider.settlements
    assert settlement.amounts == {"EUR": Decimal("12.50")}
    found = caller.http.get("/v1/settlements", params={"idempotency_key": "k-1"})
    assert found.json() == settlement.document() == first.json()
    assert provider.ledger == (), "nobody was charged"
    other = caller.http.post("/v1/settlements", json=body | {"orders": 3}, headers=key)
    assert (other.status_code, code(other)) == (422, "key_reused")
    assert code(caller.http.post("/v1/settlements", json={"reference": "x"})) == "invalid_request"


def test_the_ledger_cannot_be_changed(provider: PaymentProvider, caller: Caller) -> None:
    caller.charge()
    [charge] = provider.ledger
    with pytest.raises(FrozenInstanceError):
        charge.amount = Decimal(0)  # type: ignore[misc]  # that it cannot be is the point
