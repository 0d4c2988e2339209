"""The explorations that `make explore` runs."""

from ..clock import Clock
from ..consumer import Consumer, Protected
from ..effects import Effects, Rerun
from ..records import Policy
from ..store import Store
from .scenario import CONSUMER, Message, Scenario

FIRST = Message(name="A")
RESENT = Message(name="B", sequence=2)
TWICE = Message(name="C", sequence=1, redelivered=True)
OTHER = Message(name="D", sequence=4, content="other")


def declared_effect(store: Store, clock: Clock, policy: Policy) -> Protected:
    """A consumer that declares its handler as one effect whose provider honours downstream keys."""
    effects = Effects(policy=Rerun(provider_key_retention=86_400), settle=10, whole_handler=True)
    return Consumer(CONSUMER, store, policy=policy, effects=effects, clock=clock)


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
)
"""What runs in CI. The number of faults is what fits: a minute on one core for all of it."""

QUICK = tuple(
    scenario
    for scenario in (
        Scenario(name="two deliveries", messages=(FIRST, RESENT), faults=1),
        Scenario(name="a message handed out twice", messages=(FIRST, TWICE), faults=1),
        *DEFAULT[1:3],
        DEFAULT[5],
        Scenario(name="inbox, two deliveries", messages=(FIRST, RESENT), form="inbox", faults=2),
        Scenario(name="inbox, two contents", messages=(FIRST, OTHER), form="inbox", faults=2),
    )
)
"""A few seconds' worth, for the fast tests."""
