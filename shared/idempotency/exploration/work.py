"""The business code of an exploration: one effect as a whole, a transaction's document, or named steps."""

import asyncio
import functools
from enum import StrEnum
from typing import Any

from ..attempt import Attempt, current_attempt
from ..errors import PermanentFailure, TransientFailure
from ..unit_of_work import current_unit
from .ledger import Ledger
from .machine import Machine
from .plain import PlainEffects
from .plan import Plan
from .process import Process
from .provider import Provider
from .scenario import Scenario
from .truth import Broken, Run


class Fate(StrEnum):
    """What the schedule has in store for a handler."""

    PROCEED = "proceed"
    RAISE = "raise"
    RAISE_AFTER = "raise after effect"
    DAWDLE = "dawdle"
    """Take time before what comes next, perhaps more than it has."""
    DAWDLE_AFTER = "dawdle after effect"


class HandlerFailed(Exception):
    """Raised by the explored handler when the schedule says so."""


class Work:
    """The handler of every delivery of a scenario; what it does, its forms below say."""

    def __init__(self, scenario: Scenario, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger
        self._deadline = scenario.policy.deadline

    async def run(self, process: Process) -> dict[str, Any]:
        """One run of the handler, in its attempt; gives its result."""
        attempt = current_attempt()
        run = Run(
            owner=attempt.owner,
            delivery=process.name,
            content=process.message.content,
            deadline=attempt.deadline,
            renewed_until=self._machine.now + self._deadline,
            cut_off=process.cut_off,
            stalled=attempt.owner in process.stalled,
        )
        process.runs.append(run)
        self._ledger.runs[run.owner] = run
        returned = False
        try:
            result = await self._do(attempt, run, process)
            returned = True
        except HandlerFailed:
            run.failed = True
            raise
        except Broken as broken:
            self._machine.break_(str(broken))
            raise
        finally:
            run.ended = True
            if not returned:
                run.cancelled(self._machine.now)
        return result

    async def _do(self, attempt: Attempt, run: Run, process: Process) -> dict[str, Any]:
        raise NotImplementedError


class OneEffect(Work):
    """One effect, of which nobody but the ledger knows; and a result that names the run."""

    def __init__(
        self, scenario: Scenario, machine: Machine, ledger: Ledger, effects: PlainEffects
    ) -> None:
        super().__init__(scenario, machine, ledger)
        self._effects = effects

    async def _do(self, attempt: Attempt, run: Run, process: Process) -> dict[str, Any]:
        result = {"by": process.name, "run": len(process.runs)}
        fate = await self._machine.turn("handler", "handler")
        if fate is Fate.DAWDLE:
            await self._machine.turn("at work", "handler")
        self._have_effect(attempt, run, result)
        if fate is Fate.RAISE_AFTER:
            raise HandlerFailed
        if fate is Fate.DAWDLE_AFTER:
            await self._machine.turn("at work", "handler")
        return result

    def _have_effect(self, attempt: Attempt, run: Run, result: dict[str, Any]) -> None:
        self._ledger.check_claim(run)
        self._effects.effect(run)
        self._machine.note(run.delivery, "effect", f"EXECUTED, attempt {attempt.number}")


class OneDocument(OneEffect):
    """One document, written with its marker in the transaction of the inbox."""

    def _have_effect(self, attempt: Attempt, run: Run, result: dict[str, Any]) -> None:
        current_unit().create("line-1", result)


class NamedSteps(Work):
    """One step after the other; and a result that is the same whoever comes to the end."""

    def __init__(
        self, scenario: Scenario, machine: Machine, ledger: Ledger, plan: Plan, provider: Provider
    ) -> None:
        super().__init__(scenario, machine, ledger)
        self._plan = plan
        self._provider = provider

    async def _do(self, attempt: Attempt, run: Run, process: Process) -> dict[str, Any]:
        receipts: dict[str, str] = {}
        if self._plan.side_by_side:
            await self._turn("before its steps")
            steps = (self._step(attempt, run, step, receipts) for step in self._plan.steps)
            await asyncio.gather(*steps)
        else:
            for step in self._plan.steps:
                await self._turn(f"before {step}")
                await self._step(attempt, run, step, receipts)
        await self._turn("after its steps")
        return {step: receipts[step] for step in self._plan.steps if step in receipts}

    async def _step(self, attempt: Attempt, run: Run, step: str, receipts: dict[str, str]) -> None:
        plan = self._plan
        try:
            receipts[step] = await attempt.step(
                step,
                functools.partial(self._provider.call, run, step),
                deadline=plan.deadline,
                last=plan.last and step == plan.steps[-1],
                result_type=str,
            )
        except (TransientFailure, PermanentFailure):
            if not plan.swallows:
                raise

    async def _turn(self, label: str) -> None:
        if await self._machine.turn("handler", label) is Fate.DAWDLE:
            await self._machine.turn("at work", label)
