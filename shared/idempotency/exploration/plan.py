"""A handler of named steps: which, at what kind of provider, and what its consumer says of doubt."""

import math
from typing import Literal

import msgspec

from ..effects import Ask, Effects, Quarantine, Reconcile, Rerun, TakeoverPolicy

type PolicyName = Literal["rerun", "reconcile", "quarantine"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler's steps are, and the other side of them; durations in seconds.

    ``policy`` applies to steps in doubt, ``then`` once ``stated_retention`` is over; the provider
    recognises a key for ``key_retention`` from the first time it had its effect: 0 is a provider that
    honours no keys. ``last``: the last step is recorded with the completion. ``swallows``: the handler
    makes nothing of a step that failed, and goes on. ``side_by_side``: the steps run at the same time.
    """

    policy: PolicyName
    then: Literal["reconcile", "quarantine"] = "quarantine"
    key_retention: float = 0.0
    stated_retention: float = math.inf
    steps: tuple[str, ...] = ("reserve", "charge")
    last: bool = False
    swallows: bool = False
    side_by_side: bool = False
    deadline: float = 14.0
    settle: float = 25.0
    """So long that a call at the start of a lease may land well after the lease: their sum is above it."""

    def effects(self, ask: Ask) -> Effects:
        """What the consumer states."""
        return Effects(policy=self._policy(self.policy, ask), settle=self.settle)

    def counts_age(self) -> bool:
        """Whether it makes a difference how long ago a key was first used."""
        return self.policy == "rerun" and math.isfinite(self.stated_retention)

    def _policy(self, name: PolicyName, ask: Ask) -> TakeoverPolicy:
        match name:
            case "reconcile":
                return Reconcile(ask)
            case "quarantine":
                return Quarantine()
            case "rerun":
                return Rerun(
                    provider_key_retention=self.stated_retention,
                    then=Reconcile(ask) if self.then == "reconcile" else Quarantine(),
                )
