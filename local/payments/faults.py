"""Faults on demand: each says when the charge happens, if at all, and what the caller hears.

Without more words a fault strikes the next charge request and is over. Every fault can be aimed:

    faults.slow(2, reference="o-7")             the next request for o-7
    faults.fail_before_charging(times=3)        the next three requests
    faults.land_later(5, times=None, rate=0.1)  one request in ten, until `clear`

A request meets one fault at most, the first that fits in the order they were set. Chance is drawn
from the seed, the fault, the reference and how often that reference came: the same traffic has
the same faults, in whatever order concurrent requests of different references arrive.
"""

import enum
import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TypedDict, Unpack

from .answer import Answer, problem


class Aim(TypedDict, total=False):
    """Which requests a fault strikes.

    reference: those for this one; any by default.
    times: how many of them, 1 by default; None: no end.
    rate: how likely each is struck, above 0 up to 1 (the default).
    """

    reference: str | None
    times: int | None
    rate: float


class Reply(enum.Enum):
    """What the caller hears when it is no answer of the fault's own."""

    RESULT = "what became of the charge"
    SILENCE = "nothing, for as long as it waits"
    DISCONNECT = "the end of the connection"


@dataclass(frozen=True, slots=True)
class Fault:
    """One course a request can take.

    charge_after: seconds until the charge; 0: at once; None: never.
    """

    name: str
    charge_after: float | None
    reply: Reply | Answer


@dataclass(slots=True)
class _Trap:
    fault: Fault
    reference: str | None
    times: int | None
    rate: float
    number: int


class Faults:
    """The faults that wait for their request, and the outage. Thread-safe."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._traps: list[_Trap] = []
        self._set_so_far = 0
        self._met: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()
        self._outage: Answer | None = None

    def slow(self, seconds: float, **aim: Unpack[Aim]) -> None:
        """Hold the charge up, and the answer; it is made even if the caller has left by then.

        Meanwhile the key is in use, and the ledger has nothing.
        """
        self._set(Fault("slow", seconds, Reply.RESULT), aim)

    def time_out_before_charging(self, **aim: Unpack[Aim]) -> None:
        """Never answer; the request has got lost, its key included."""
        self._set(Fault("time_out_before_charging", None, Reply.SILENCE), aim)

    def time_out_after_charging(self, **aim: Unpack[Aim]) -> None:
        """Charge, and never answer."""
        self._set(Fault("time_out_after_charging", 0, Reply.SILENCE), aim)

    def fail_before_charging(self, status: int = 500, **aim: Unpack[Aim]) -> None:
        """Answer with an error, and nothing else; the key stays unknown."""
        self._set(Fault("fail_before_charging", None, _failure(status)), aim)

    def fail_after_charging(self, status: int = 500, **aim: Unpack[Aim]) -> None:
        """Charge, and answer with an error; a repeat with the key is told of the charge."""
        self._set(Fault("fail_after_charging", 0, _failure(status)), aim)

    def drop_connection_before(self, **aim: Unpack[Aim]) -> None:
        """Cut the connection, and nothing else; the key stays unknown."""
        self._set(Fault("drop_connection_before", None, Reply.DISCONNECT), aim)

    def drop_connection_after(self, **aim: Unpack[Aim]) -> None:
        """Charge, and cut the connection."""
        self._set(Fault("drop_connection_after", 0, Reply.DISCONNECT), aim)

    def land_later(self, seconds: float, **aim: Unpack[Aim]) -> None:
        """Cut the connection now, and take the request in `seconds` later.

        Until then nobody knows of it: its key is free, and a search finds nothing. When it lands
        its key counts as ever: after a repeat that was faster it charges nothing, unless the key
        was forgotten in between.
        """
        self._set(Fault("land_later", seconds, Reply.DISCONNECT), aim)

    def throttle(self, status: int = 429, retry_after: int | None = 1, **aim: Unpack[Aim]) -> None:
        """Refuse: too much at once (429) or not now (503); nothing happens.

        retry_after: seconds, in the header; None leaves it out.
        """
        refusal = problem(status, "throttled", "too many requests", retry_after)
        self._set(Fault("throttle", None, refusal), aim)

    def outage(self, on: bool = True, retry_after: int | None = None) -> None:
        """Begin (or end) to refuse every request, searches as well, with 503."""
        refusal = problem(503, "outage", "the provider is out of order", retry_after)
        with self._lock:
            self._outage = refusal if on else None

    def clear(self) -> None:
        """Take back every fault that waits, and the outage; what has struck runs its course."""
        with self._lock:
            self._traps.clear()
            self._outage = None

    @property
    def met(self) -> Counter[str]:
        """How many requests came for each reference, those that met no fault included."""
        with self._lock:
            return self._met.copy()

    @property
    def struck(self) -> Counter[str]:
        """How often each fault has struck, by the name of its method; `outage` per refusal."""
        with self._lock:
            return self._struck.copy()

    def refusal(self) -> Answer | None:
        """What every request is told during an outage; None when there is none."""
        with self._lock:
            return self._outage

    def meet(self, reference: str) -> Fault | None:
        """Spring the first trap that fits a charge request."""
        with self._lock:
            self._met[reference] += 1
            trap = next((trap for trap in self._traps if self._catches(trap, reference)), None)
            if trap is None:
                return None
            if trap.times is not None:
                trap.times -= 1
                if trap.times == 0:
                    self._traps.remove(trap)
            return trap.fault

    def count(self, name: str) -> None:
        """Note that a fault has struck: what it does at once is done."""
        with self._lock:
            self._struck[name] += 1

    def _catches(self, trap: _Trap, reference: str) -> bool:
        if trap.reference not in (None, reference):
            return False
        draw = f"{self._seed}/{trap.number}/{self._met[reference]}/{reference}"
        return random.Random(draw).random() < trap.rate  # noqa: S311  chance, not a secret

    def _set(self, fault: Fault, aim: Aim) -> None:
        times, rate = aim.get("times", 1), aim.get("rate", 1.0)
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None, not {times}")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, not {rate}")
        if fault.charge_after is not None and fault.charge_after < 0:
            raise ValueError(f"seconds must be 0 or more, not {fault.charge_after}")
        with self._lock:
            self._set_so_far += 1
            trap = _Trap(fault, aim.get("reference"), times, rate, self._set_so_far)
            self._traps.append(trap)


def _failure(status: int) -> Answer:
    return problem(status, "internal", "something went wrong")
