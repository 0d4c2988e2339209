"""The rules of charging and settling: what a key stands for, who is declined, what goes into a ledger.

Everything here happens on one thread and never waits in between, so each call is a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from .answer import Answer, problem
from .clock import Clock

DECLINED_PREFIX = "declined"


class Request(Protocol):
    """What is asked for once per key; equal to another when all fields are, to the letter."""

    @property
    def reference(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...


class Entry(Protocol):
    """What stands in the ledger for it."""

    def document(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class _KnownKey:
    """What was asked under a key, when at first, and the answer once there is one."""

    request: Request
    first_used: float
    answer: Answer | None = None


class Books[R: Request]:
    """Charges, or settles, at most once per key, for as long as the key is known.

    enter: puts a request into the ledger. key_retention: how long a key is known, from its first
    use; zero: keys are noted and otherwise ignored.
    """

    def __init__(
        self,
        enter: Callable[[R, str | None, datetime], Entry],
        clock: Clock,
        key_retention: timedelta,
    ) -> None:
        self._enter = enter
        self._clock = clock
        self._retention = key_retention.total_seconds()
        self._keys: dict[str, _KnownKey] = {}
        self._declined: set[str] = set()

    def charge(self, request: R, key: str | None) -> Answer:
        """Charge, or say why not, or give the answer that this key had before."""
        return self.claim(request, key) or self.carry_out(request, key)

    def claim(self, request: R, key: str | None) -> Answer | None:
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

    def carry_out(self, request: R, key: str | None) -> Answer:
        """Charge or decline for the request that holds the key, and keep the answer with it."""
        if self._declines(request):
            answer = problem(402, "card_declined", "the customer's card was declined")
        else:
            entry = self._enter(request, key, self._clock.now())
            answer = Answer(201, entry.document())
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

    def _declines(self, request: R) -> bool:
        return any(
            name in self._declined or name.startswith(DECLINED_PREFIX) for name in request.names
        )
