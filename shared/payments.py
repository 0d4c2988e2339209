"""Payments: what an order costs its customer, and the provider that charges it over HTTP."""

import functools
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .idempotency import (
    Answer,
    Attempt,
    DidNotHappen,
    Happened,
    MalformedContent,
    PermanentFailure,
    TransientFailure,
    current_attempt,
    send_headers,
)
from .order_events import ORDER_PLACED, OrderEvent
from .orders import Currency, Name, is_amount

if TYPE_CHECKING:
    import httpx

CHARGE: Final = "charge"
"""The step's name; it is part of the key that the provider gets, so it stays."""
_CHARGES: Final = "/v1/charges"
_SETTLEMENTS: Final = "/v1/settlements"
_CONNECTS_AGAIN = 1
_CONNECTS_WITHIN = 0.25
"""Of a call's time: the rest is for the answer, so that a connection never made is told apart."""
_REFUSED_FOR_NOW = {"throttled", "outage"}
"""What the provider calls an answer that says: nothing happened, come back later."""

_UNCLEAR = {408, 409, 425}
"""Answers that leave open what became of the charge: the first request with its key may still run."""


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What OrderPlaced tells of who has to pay how much; ``total`` in its currency."""

    customer_id: Name
    currency: Currency
    total: Decimal

    def __post_init__(self) -> None:
        if not is_amount(self.total):
            raise ValueError("Expected a `total` from 0, of at most 4 decimals")


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of a charge that was made."""

    charge_id: str
    amount: Decimal
    currency: str


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider says of a settlement that it has noted."""

    settlement_id: str


class PaymentProvider:
    """The provider's HTTP interface; its client is made at the first call and kept.

    Every charge made in a step carries the step's key. Connections that fail are tried again by the
    transport, which sent nothing by then; any other failure is the consumer's to judge.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        """``timeout``: seconds for one call as a whole."""
        self.timeout = timeout
        self._url = url
        self._client: httpx.AsyncClient | None = None

    async def charge(self, order_id: str, due: Due) -> Receipt:
        """Charge the customer for an order.

        Raises PermanentFailure when the provider refuses for good and TransientFailure when it does
        for now: nothing happened. After anything else (httpx.HTTPError) nobody knows.
        """
        body = {
            "customer_id": due.customer_id,
            "amount": f"{due.total:f}",
            "currency": due.currency,
            "reference": order_id,
        }
        return await self._posted(_CHARGES, body, Receipt)

    async def settle(self, reference: str, amounts: Mapping[str, Decimal], orders: int) -> Settled:
        """Tell what was taken, by currency, and for how many orders; raises as `charge` does."""
        body = {
            "reference": reference,
            "amounts": {currency: f"{amount:f}" for currency, amount in amounts.items()},
            "orders": orders,
        }
        return await self._posted(_SETTLEMENTS, body, Settled)

    async def reconcile(self, key: str, step: str, attempt: Attempt) -> Answer:
        """What became of a charge, by the key it was sent under; raises when it cannot be found out."""
        return await self._found(_CHARGES, attempt.downstream_key(step), Receipt)

    async def reconcile_settlement(self, key: str, step: str, attempt: Attempt) -> Answer:
        """The same of a settlement."""
        return await self._found(_SETTLEMENTS, attempt.downstream_key(step), Settled)

    async def _posted[T](self, path: str, body: Mapping[str, Any], as_type: type[T]) -> T:
        client = self._connected()
        from httpx import ConnectError, ConnectTimeout, PoolTimeout

        try:
            answer = await client.post(path, json=body)
        except (ConnectError, ConnectTimeout, PoolTimeout) as error:
            raise TransientFailure(
                f"the payment provider cannot be reached ({type(error).__name__})"
            ) from error
        if answer.is_client_error or answer.status_code == 503:
            _raise_refusal(answer)
        return _read(answer, as_type)

    async def _found(self, path: str, key: str, as_type: type[Any]) -> Answer:
        answer = await self._connected().get(path, params={"idempotency_key": key})
        if answer.status_code == 404:
            return DidNotHappen()
        return Happened(_read(answer, as_type))

    async def close(self) -> None:
        """Let go of connections; the next call makes new ones."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connected(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            connect = self.timeout * _CONNECTS_WITHIN
            self._client = httpx.AsyncClient(
                base_url=self._url,
                timeout=httpx.Timeout(self.timeout, connect=connect, pool=connect),
                transport=httpx.AsyncHTTPTransport(retries=_CONNECTS_AGAIN),
                event_hooks={"request": [send_headers]},
            )
        return self._client


async def charge_order(event: OrderEvent, provider: PaymentProvider) -> Receipt | None:
    """Charge the customer of an order that was placed; None where there is nothing to charge."""
    attempt = current_attempt()
    if event.type != ORDER_PLACED:
        attempt.rule_out_effects()
        return None
    due = _due(event.data)
    if not due.total:
        attempt.rule_out_effects()
        return None
    call = functools.partial(provider.charge, event.subject, due)
    return await attempt.step(
        CHARGE, call, deadline=provider.timeout, last=True, result_type=Receipt
    )


def _due(data: Mapping[str, Any]) -> Due:
    try:
        return msgspec.convert(data, Due)
    except msgspec.ValidationError as error:
        raise MalformedContent(f"the event's data: {error}", reason="SchemaViolation") from error


def _read[T](answer: "httpx.Response", as_type: type[T]) -> T:
    answer.raise_for_status()
    return msgspec.json.decode(answer.content, type=as_type)


def _raise_refusal(answer: "httpx.Response") -> None:
    """Raise what a refusal is to the consumer; one that is not clear is left to its status."""
    code = _code_of(answer)
    wait = answer.headers.get("Retry-After", "")
    if answer.status_code == 429 or code in _REFUSED_FOR_NOW:
        raise TransientFailure(
            f"the payment provider refuses for now ({answer.status_code} {code})",
            retry_after=float(wait) if wait.isdecimal() else None,
        )
    if answer.status_code == 402:
        raise PermanentFailure("CardDeclined", "the customer's card was declined")
    if answer.status_code in (400, 422):
        raise PermanentFailure("ChargeRefused", f"the payment provider answers {code}")
    if answer.is_client_error and answer.status_code not in _UNCLEAR:
        raise TransientFailure(f"the payment provider does not let us in ({answer.status_code})")


def _code_of(answer: "httpx.Response") -> str:
    try:
        problem: Any = answer.json()
    except ValueError:
        return ""
    return str(problem.get("code", "")) if isinstance(problem, dict) else ""
