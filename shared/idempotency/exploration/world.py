"""Puts the world of one schedule together: store, clock, provider, handler, and what keeps the truth."""

from collections.abc import Callable

from ..protected import Protected
from .books import Books
from .ledger import Ledger
from .machine import Machine
from .plain import PlainEffects
from .provider import Provider
from .scenario import Scenario
from .seams import ExploredClock, ExploredInbox, ExploredStore
from .stepwise import StepEffects
from .work import NamedSteps, OneDocument, OneEffect, Work


def world_of(scenario: Scenario, machine: Machine) -> tuple[Ledger, Work, Callable[[], Protected]]:
    """The truth, the handler, and what makes a consumer for a new process; all share one store."""
    clock = ExploredClock(machine)
    policy, plan = scenario.policy, scenario.plan
    if plan is not None:
        books = Books(plan, lambda: machine.now, machine.note)
        steps = StepEffects(books)
        ledger = Ledger(steps, most_late=2)
        provider = Provider(machine, ledger, steps, books)
        work: Work = NamedSteps(scenario, machine, ledger, plan, provider)
        effects = plan.effects(provider.ask)
        store = ExploredStore(machine, ledger, scenario.store(clock), fences=scenario.fences)
        return ledger, work, lambda: scenario.consumer_of_steps(store, clock, policy, effects)
    plain = PlainEffects()
    ledger = Ledger(plain)
    if scenario.form == "inbox":
        inbox = ExploredInbox(machine, ledger, plain, scenario.inbox_store(clock))
        work = OneDocument(scenario, machine, ledger, plain)
        return ledger, work, lambda: scenario.inbox(inbox, clock, policy)
    store = ExploredStore(machine, ledger, scenario.store(clock), fences=scenario.fences)
    work = OneEffect(scenario, machine, ledger, plain)
    return ledger, work, lambda: scenario.consumer(store, clock, policy)
