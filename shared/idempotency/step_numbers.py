"""What a step's deadline has to keep to, beside its consumer's other numbers. Pure; all in seconds."""

from .effects import Effects
from .errors import ConfigurationError
from .records import Policy


def settle_of(effects: Effects, policy: Policy) -> float:
    """How long a call may still land."""
    return policy.lease if effects.settle is None else effects.settle


def check_deadline(name: str, deadline: float, effects: Effects, policy: Policy) -> None:
    """Raise ConfigurationError unless a step of this deadline can be called, and be settled later."""
    settle = settle_of(effects, policy)
    if not 0 < deadline < policy.lease:
        raise ConfigurationError(
            f"the deadline of step {name!r} ({deadline:g} s) must be above 0 and below the lease "
            f"({policy.lease:g} s): a call must be over before another attempt may begin"
        )
    if deadline > settle:
        raise ConfigurationError(
            f"settle ({settle:g} s) must not be less than the deadline of step {name!r} "
            f"({deadline:g} s): a policy would act while the call may still land"
        )
    if settle + deadline > policy.deadline:
        raise ConfigurationError(
            f"settle ({settle:g} s) and the deadline of step {name!r} ({deadline:g} s) must not exceed the "
            f"handler's deadline ({policy.deadline:g} s): an attempt that takes over could never come to "
            "its call"
        )
