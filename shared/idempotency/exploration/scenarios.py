"""The explorations that `make explore` runs."""

import math

import msgspec

from ..clock import Clock
from ..consumer import Consumer
from ..effects import Effects, Rerun
from ..protected import Protected
from ..records import Policy
from ..store import Store
from .plan import Plan
from .scenario import CONSUMER, POLICY, Message, Scenario, StepsFactory, with_effects

FIRST = Message(name="A")
RESENT = Message(name="B", sequence=2)
TWICE = Message(name="C", sequence=1, redelivered=True)
OTHER = Message(name="D", sequence=4, content="other")

STEPS_POLICY = msgspec.structs.replace(POLICY, deadline=40)
"""An attempt that takes over waits until the earlier one's calls have landed, and then calls itself."""


def declared_effect(store: Store, clock: Clock, policy: Policy) -> Protected:
    """A consumer that declares its handler as one effect whose provider honours downstream keys."""
    effects = Effects(policy=Rerun(provider_key_retention=86_400), settle=10, whole_handler=True)
    return Consumer(CONSUMER, store, policy=policy, effects=effects, clock=clock)


def in_steps(
    name: str, plan: Plan, *messages: Message, faults: int, consumer: StepsFactory = with_effects
) -> Scenario:
    """A scenario of named steps; ``consumer`` is a seam for mutants."""
    return Scenario(
        name=name,
        messages=messages,
        plan=plan,
        faults=faults,
        policy=STEPS_POLICY,
        consumer_of_steps=consumer,
    )


RERUN = Plan(policy="rerun", key_retention=math.inf)
RECONCILE = Plan(policy="reconcile")
QUARANTINE = Plan(policy="quarantine")
FORGOTTEN = Plan(policy="rerun", steps=("charge",), key_retention=80, stated_retention=80)
"""At a provider that knows a key for so long that a second attempt may rely on it, and a third not."""
ONE_STEP = Plan(policy="reconcile", steps=("charge",), last=True)
SIDE_BY_SIDE = Plan(policy="reconcile", side_by_side=True)
SWALLOWING = Plan(policy="rerun", steps=("charge",), key_retention=math.inf, swallows=True)


def _and_last(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, last=True)


STEPS = (
    in_steps("steps, reconcile", RECONCILE, FIRST, RESENT, faults=1),
    in_steps("steps, rerun", RERUN, FIRST, RESENT, faults=1),
    in_steps("steps, quarantine", QUARANTINE, FIRST, RESENT, faults=1),
    in_steps("steps, two contents", _and_last(RECONCILE), FIRST, OTHER, faults=1),
    in_steps("steps side by side, one message", SIDE_BY_SIDE, FIRST, faults=2),
    in_steps("last step, three deliveries", ONE_STEP, FIRST, RESENT, TWICE, faults=0),
    in_steps("steps, reconcile, one message", RECONCILE, FIRST, faults=2),
    in_steps("last step, reconcile, one message", _and_last(RECONCILE), FIRST, faults=2),
    in_steps("steps, rerun, one message", RERUN, FIRST, faults=2),
    in_steps("last step, rerun, one message", _and_last(RERUN), FIRST, faults=2),
    in_steps("steps, quarantine, one message", QUARANTINE, FIRST, faults=2),
    in_steps("rerun, errors swallowed", SWALLOWING, FIRST, faults=2),
    in_steps("rerun, key forgotten, quarantine", FORGOTTEN, FIRST, faults=2),
    in_steps(
        "rerun, key forgotten, reconcile",
        msgspec.structs.replace(FORGOTTEN, then="reconcile"),
        FIRST,
        faults=2,
    ),
)
"""Named steps; one message comes again as often as it is not acknowledged, so it has takeovers too."""

DEFAULT = (
    Scenario(name="two deliveries", messages=(FIRST, RESENT), faults=2),
    Scenario(
        name="two deliveries in one process", messages=(FIRST, RESENT), faults=1, one_process=True
    ),
    Scenario(name="two contents", messages=(FIRST, OTHER), faults=2),
    Scenario(name="three deliveries", messages=(FIRST, RESENT, TWICE), faults=1),
    Scenario(name="three deliveries, two contents", messages=(FIRST, RESENT, OTHER), faults=1),
    Scenario(
        name="two deliveries, declared effect",
        messages=(FIRST, RESENT),
        faults=1,
        consumer=declared_effect,
    ),
    Scenario(
        name="two contents, declared effect",
        messages=(FIRST, OTHER),
        faults=2,
        consumer=declared_effect,
    ),
    Scenario(name="inbox, two deliveries", messages=(FIRST, RESENT), form="inbox", faults=3),
    Scenario(
        name="inbox, three deliveries", messages=(FIRST, RESENT, TWICE), form="inbox", faults=2
    ),
    Scenario(
        name="inbox, three deliveries, two contents",
        messages=(FIRST, RESENT, OTHER),
        form="inbox",
        faults=2,
    ),
    *STEPS,
)
"""What runs in CI. The number of faults is what fits: a minute or so on two free cores."""

QUICK = tuple(
    scenario
    for scenario in (
        Scenario(name="two deliveries", messages=(FIRST, RESENT), faults=1),
        Scenario(name="a message handed out twice", messages=(FIRST, TWICE), faults=1),
        DEFAULT[1],
        Scenario(name="two contents", messages=(FIRST, OTHER), faults=1),
        DEFAULT[5],
        *(
            msgspec.structs.replace(scenario, faults=1)
            for scenario in STEPS
            if len(scenario.messages) == 1
        ),
        Scenario(name="inbox, two deliveries", messages=(FIRST, RESENT), form="inbox", faults=2),
        Scenario(name="inbox, two contents", messages=(FIRST, OTHER), form="inbox", faults=2),
    )
)
"""A few seconds' worth, for the fast tests."""
