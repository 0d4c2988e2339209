"""Pacing: a delivery that must come back later comes back later, not ten times within seconds."""

import random

import msgspec


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """How long a delivery is held before it is given back, in seconds, doubling with each delivery."""

    first: float = 1.0
    longest: float = 30.0

    def hold(self, delivery_count: int | None, *, at_least: float = 0.0) -> float:
        """Seconds to hold the ``delivery_count``-th delivery (from 1), jittered, never over ``longest``."""
        doublings = min(max((delivery_count or 1) - 1, 0), 16)
        spread = random.uniform(0.75, 1.0)  # noqa: S311 - jitter, not a secret
        return float(min(max(self.first * 2**doublings * spread, at_least), self.longest))
