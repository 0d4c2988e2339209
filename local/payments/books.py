"""The rules of charging: what a key stands for, who is declined, what goes into the ledger.

Everything here happens on one thread and never waits in between, so each call is a whole.
"""

from dataclasses import dataclass
from datetime import timedelta

from .answer import Answer, problem
from .charge_request import ChargeRequest
from .clock import Clock
from .ledger import Ledger

DECLINED_PREFIX = "declined"


@dataclass(slots=True)
class _KnownKey:
    """What was asked under a key, when at first, and the answer once there is one."""

    request: ChargeRequest
    first_used: float
    answer: Answer | None = None


class Books:
    """Charges at most once per key, for as long as the key is known.

    key_retention: how long, from its first use; zero: keys are noted and otherwise ignored.
    """

    def __init__(self, ledger: Ledger, clock: Clock, key_retention: timedelta) -> None:
        self._ledger = ledger
        self._clock = clock
        self._retention = key_retention.total_seconds()
        self._keys: dict[str, _KnownKey] = {}
        self._declined: set[str] = set()

    def charge(self, request: ChargeRequest, key: str | None) -> Answer:
        """Charge, or say why not, or give the answer that this key had before."""
        return self.claim(request, key) or self.carry_out(request, key)

    def claim(self, request: ChargeRequest, key: str | None) -> Answer | None:
        """Take the key for this request; an answer if it is taken: replay, 409 or 422."""
        if key is None or not self._retention:
            return None
        known = self._keys.get(key)
        if known is None or self._is_over(known):
            self._keys[key] = _KnownKey(request, first_used=self._clock.elapsed())
            return None
        if known.request != request:
            return problem(422, "key_reused", "this key came with another request before")
        if known.answer is None:
            return problem(409, "key_in_use", "the first request with this key still runs")
        return known.answer.replayed()

    def carry_out(self, request: ChargeRequest, key: str | None) -> Answer:
        """Charge or decline for the request that holds the key, and keep the answer with it."""
        if self._declines(request):
            answer = problem(402, "card_declined", "the customer's card was declined")
        else:
            charge = self._ledger.append(request, key, self._clock.now())
            answer = Answer(201, charge.document())
        known = self._keys.get(key) if key is not None else None
        if known is not None:
            known.answer = answer
        return answer

    def decline(self, name: str) -> None:
        """Decline this customer or reference from now on."""
        self._declined.add(name)

    def forget_keys(self) -> None:
        """Forget the keys that have their answer; running requests keep theirs."""
        self._keys = {key: known for key, known in self._keys.items() if known.answer is None}

    def give_up_running(self) -> None:
        """Free the keys of requests that will never be carried out."""
        self._keys = {key: known for key, known in self._keys.items() if known.answer is not None}

    def _is_over(self, known: _KnownKey) -> bool:
        age = self._clock.elapsed() - known.first_used
        return known.answer is not None and age >= self._retention

    def _declines(self, request: ChargeRequest) -> bool:
        names = (request.customer_id, request.reference)
        return any(name in self._declined or name.startswith(DECLINED_PREFIX) for name in names)
