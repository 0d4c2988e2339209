"""Each fault as a caller meets it, and what the ledger says then and later."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from local.payments import Faults, PaymentProvider
from local.payments.faults import Aim
from tests.local.payments.calls import HASTE, PATIENCE, Caller, code


def lose_in_silence(faults: Faults) -> None:
    faults.time_out_before_charging()


def lose_with_connection(faults: Faults) -> None:
    faults.drop_connection_before()


def lose_with_error(faults: Faults) -> None:
    faults.fail_before_charging()


def answer_with_silence(faults: Faults) -> None:
    faults.time_out_after_charging()


def answer_with_end_of_connection(faults: Faults) -> None:
    faults.drop_connection_after()


def answer_with_error(faults: Faults) -> None:
    faults.fail_after_charging()


BEFORE = {
    lose_in_silence: httpx.ReadTimeout,
    lose_with_connection: httpx.RemoteProtocolError,
    lose_with_error: 500,
}
AFTER = {
    answer_with_silence: httpx.ReadTimeout,
    answer_with_end_of_connection: httpx.RemoteProtocolError,
    answer_with_error: 500,
}
SetFault = Callable[[Faults], None]
Heard = type[Exception] | int


def heard(call: Callable[[], httpx.Response]) -> Heard:
    """The status that was answered, or the error in its place."""
    try:
        return call().status_code
    except httpx.TransportError as error:
        return type(error)


@pytest.mark.parametrize(("fault", "expected"), BEFORE.items())
def test_given_a_fault_before_charging_then_nothing_is_charged_and_a_repeat_is_the_first(
    provider: PaymentProvider, hasty: Caller, caller: Caller, fault: SetFault, expected: Heard
) -> None:
    fault(provider.faults)
    first = hasty if expected is httpx.ReadTimeout else caller
    assert heard(lambda: first.charge("k-1")) == expected
    provider.wait_for(lambda p: p.faults.struck, PATIENCE)
    assert provider.ledger == ()
    assert caller.search(idempotency_key="k-1").status_code == 404
    repeat = caller.charge("k-1")
    assert repeat.status_code == 201
    assert "Idempotent-Replayed" not in repeat.headers
    assert len(provider.ledger) == 1


@pytest.mark.parametrize(("fault", "expected"), AFTER.items())
def test_given_a_fault_after_charging_then_it_is_charged_and_a_repeat_with_the_key_is_told(
    provider: PaymentProvider, hasty: Caller, caller: Caller, fault: SetFault, expected: Heard
) -> None:
    fault(provider.faults)
    first = hasty if expected is httpx.ReadTimeout else caller
    assert heard(lambda: first.charge("k-1")) == expected
    provider.wait_for(lambda p: p.faults.struck, PATIENCE)
    assert len(provider.ledger) == 1
    assert caller.search(idempotency_key="k-1").status_code == 200
    assert caller.charge("k-1").headers["Idempotent-Replayed"] == "true"
    assert provider.charged_twice() == ()


@pytest.mark.parametrize("fault", AFTER)
def test_given_a_fault_after_charging_and_forgotten_keys_then_a_repeat_charges_twice(
    provider: PaymentProvider, hasty: Caller, caller: Caller, fault: SetFault
) -> None:
    fault(provider.faults)
    heard(lambda: hasty.charge("k-1"))
    provider.wait_for(lambda p: p.faults.struck, PATIENCE)
    provider.forget_keys()
    caller.charge("k-1")
    assert provider.charged_twice() == ("o-7",)


def test_given_a_slow_charge_then_its_key_is_in_use_until_it_is_made(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.slow(60)
    with ThreadPoolExecutor(1) as background:
        first = background.submit(caller.charge, "k-1")
        provider.wait_for(lambda p: p.faults.struck["slow"], PATIENCE)
        provider.forget_keys()  # only those that have their answer
        meanwhile = caller.charge("k-1")
        other = caller.charge("k-1", amount="1")
        assert (meanwhile.status_code, code(meanwhile)) == (409, "key_in_use")
        assert (other.status_code, code(other)) == (422, "key_reused")
        assert caller.search(idempotency_key="k-1").status_code == 404
        provider.clock.advance(59)
        assert provider.ledger == ()
        provider.clock.advance(1)
        assert len(provider.ledger) == 1
        assert first.result().status_code == 201
    assert caller.charge("k-1").json() == first.result().json()


def test_given_a_slow_charge_whose_caller_leaves_then_it_is_made_all_the_same(
    provider: PaymentProvider, hasty: Caller, caller: Caller
) -> None:
    provider.faults.slow(60)
    assert heard(lambda: hasty.charge("k-1")) is httpx.ReadTimeout
    provider.wait_for(lambda p: p.faults.struck["slow"], PATIENCE)
    assert caller.charge("k-1").status_code == 409
    provider.clock.advance(60)
    assert len(provider.ledger) == 1
    assert caller.charge("k-1").headers["Idempotent-Replayed"] == "true"


def test_given_a_slow_charge_then_it_is_answered_when_real_time_has_passed(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.slow(0.1)
    before = time.monotonic()
    assert caller.charge("k-1").status_code == 201
    assert 0.1 <= time.monotonic() - before < PATIENCE


def test_given_a_call_that_lands_later_then_nobody_knows_of_it_until_then(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.land_later(30)
    assert heard(lambda: caller.charge("k-1")) is httpx.RemoteProtocolError
    assert caller.search(idempotency_key="k-1").status_code == 404
    provider.clock.advance(29)
    assert caller.search(reference="o-7").status_code == 404
    provider.clock.advance(1)
    assert caller.search(reference="o-7").status_code == 200
    assert len(provider.ledger) == 1


def test_given_a_call_that_lands_later_then_it_lands_when_real_time_has_passed(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.land_later(0.05)
    heard(lambda: caller.charge("k-1"))
    provider.wait_for(lambda p: p.ledger, PATIENCE)


@pytest.mark.parametrize(
    ("key", "forgotten", "twice"),
    [("k-1", False, ()), ("k-1", True, ("o-7",)), (None, False, ("o-7",))],
    ids=["known key", "forgotten key", "no key"],
)
def test_given_a_repeat_faster_than_the_landing_then_only_a_known_key_saves_the_customer(
    provider: PaymentProvider,
    caller: Caller,
    key: str | None,
    forgotten: bool,
    twice: tuple[str, ...],
) -> None:
    provider.faults.land_later(30)
    heard(lambda: caller.charge(key))
    assert caller.charge(key).status_code == 201
    if forgotten:
        provider.forget_keys()
    provider.clock.advance(30)
    assert provider.charged_twice() == twice


@pytest.mark.parametrize(("status", "retry_after"), [(429, 7), (503, None)])
def test_given_throttling_then_a_refusal_says_when_to_come_back_and_nothing_happens(
    provider: PaymentProvider, caller: Caller, status: int, retry_after: int | None
) -> None:
    provider.faults.throttle(status, retry_after=retry_after, times=2)
    for _ in range(2):
        response = caller.charge("k-1")
        assert (response.status_code, code(response)) == (status, "throttled")
        assert response.headers.get("Retry-After") == (retry_after and str(retry_after))
    assert provider.ledger == ()
    assert caller.charge("k-1").status_code == 201


def test_given_an_outage_then_charges_and_searches_are_refused_until_it_is_over(
    provider: PaymentProvider, caller: Caller
) -> None:
    charge = caller.charge("k-1").json()
    provider.faults.outage()
    refused = [
        caller.charge("k-2"),
        caller.search(reference="o-7"),
        caller.http.get(f"/v1/charges/{charge['charge_id']}"),
    ]
    assert [(each.status_code, code(each)) for each in refused] == [(503, "outage")] * 3
    assert provider.faults.struck["outage"] == 3
    provider.faults.outage(False)
    assert caller.charge("k-1").json() == charge
    assert len(provider.ledger) == 1


def test_given_a_fault_for_one_reference_then_others_are_spared_and_it_strikes_so_often(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.fail_before_charging(502, reference="o-7", times=2)
    statuses = [caller.charge(reference=name).status_code for name in ("o-8", *["o-7"] * 3)]
    assert statuses == [201, 502, 502, 201]
    assert provider.faults.struck == {"fail_before_charging": 2}


def test_given_several_faults_then_each_request_meets_one_in_the_order_they_were_set(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.fail_before_charging(501)
    provider.faults.fail_before_charging(502)
    assert [caller.charge().status_code for _ in range(3)] == [501, 502, 201]


def test_given_faults_taken_back_then_none_strikes(
    provider: PaymentProvider, caller: Caller
) -> None:
    provider.faults.fail_before_charging(times=None)
    provider.faults.outage()
    provider.faults.clear()
    assert caller.charge().status_code == 201


def strikes(seed: int, references: list[str]) -> dict[str, bool]:
    """Which references a fault with a rate strikes when they arrive in this order."""
    faults = Faults(seed)
    faults.throttle(times=None, rate=0.25)
    return {reference: faults.meet(reference) is not None for reference in references}


def test_given_a_rate_and_a_seed_then_the_same_requests_are_struck_in_any_order_of_arrival() -> (
    None
):
    references = [f"o-{number}" for number in range(400)]
    struck = strikes(7, references)
    assert struck == strikes(7, references[::-1])
    assert struck != strikes(8, references)
    assert 70 <= sum(struck.values()) <= 130


def test_given_a_rate_then_a_request_that_was_struck_gets_through_when_repeated() -> None:
    faults = Faults()
    faults.throttle(times=None, rate=0.5)
    tries = [faults.meet("o-7") is None for _ in range(30)]
    assert set(tries) == {True, False}


@pytest.mark.parametrize(
    ("aim", "complaint"), [({"times": 0}, "times"), ({"rate": 0}, "rate"), ({"rate": 1.1}, "rate")]
)
def test_given_an_aim_that_can_hit_nothing_then_it_is_refused(aim: Aim, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Faults().throttle(**aim)


def test_given_callers_who_wait_for_ever_then_stopping_does_not_wait_for_them() -> None:
    with ThreadPoolExecutor(2) as background:
        with PaymentProvider() as provider:
            caller = Caller(provider, timeout=60)
            provider.faults.time_out_before_charging(reference="o-7")
            provider.faults.slow(60, reference="o-8")
            calls = [
                background.submit(heard, partial(caller.charge, "k", reference=name))
                for name in ("o-7", "o-8")
            ]
            provider.wait_for(lambda p: p.faults.struck.total() == 2, PATIENCE)
            before = time.monotonic()
        assert time.monotonic() - before < PATIENCE
        assert [call.result(PATIENCE) for call in calls] == [httpx.RemoteProtocolError] * 2
    caller.http.close()
    assert provider.ledger == ()


def test_given_a_restart_then_the_address_the_ledger_and_the_keys_are_the_same() -> None:
    provider = PaymentProvider()
    with provider:
        url, caller = provider.url, Caller(provider)
        charge = caller.charge("k-1").json()
        provider.faults.land_later(5)
        heard(lambda: caller.charge("k-2"))
        provider.faults.slow(5)
        caller.http.timeout = httpx.Timeout(PATIENCE, read=HASTE)
        heard(lambda: caller.charge("k-3"))
        caller.http.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    provider.clock.advance(5)
    with provider:
        assert provider.url == url
        caller = Caller(provider)
        with caller.http:
            assert caller.charge("k-1").json() == charge
            assert len(provider.ledger) == 1  # what was under way is lost
            assert caller.charge("k-3").status_code == 201


def test_given_a_taken_port_then_starting_says_so(provider: PaymentProvider) -> None:
    second = PaymentProvider(port=provider.port)
    with pytest.raises(OSError, match="in use"):
        second.start()
    second.stop()


def test_given_what_was_awaited_does_not_come_then_the_error_says_what_did(
    provider: PaymentProvider, caller: Caller
) -> None:
    caller.charge()
    with pytest.raises(TimeoutError, match=r"not within 0.05 s; 1 charges, faults: {}"):
        provider.wait_for(lambda p: len(p.ledger) == 2, timeout=0.05)


def test_the_clock_never_goes_back(provider: PaymentProvider) -> None:
    with pytest.raises(ValueError, match="forward"):
        provider.clock.advance(-1)
