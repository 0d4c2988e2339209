"""The provider that steps are called at: where the schedule decides what becomes of a request."""

from ..attempt import Attempt
from ..downstream import current_key
from ..effects import Answer
from .books import Books, Question, StepCall
from .ledger import Ledger
from .machine import Machine
from .stepwise import StepEffects
from .truth import Broken, Run


class Provider:
    """Every call and every question is a point of the schedule."""

    def __init__(
        self, machine: Machine, ledger: Ledger, effects: StepEffects, books: Books
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._effects = effects
        self._books = books

    async def call(self, run: Run, step: str) -> str:
        """What a step calls, under the key that its requests carry; gives the provider's receipt."""
        call = StepCall(self._books, run, step, current_key() or "")
        try:
            self._effects.begins(call, self._ledger.held)
        except Broken as broken:
            self._machine.break_(str(broken))
        receipt: str = await self._machine.ask_for("provider", call)
        return receipt

    async def ask(self, _key: str, step: str, attempt: Attempt) -> Answer:
        """What `Reconcile` asks."""
        stalled = attempt.owner in self._machine.running().stalled
        try:
            self._effects.asked(step, attempt, self._ledger.held, stalled=stalled)
        except Broken as broken:
            self._machine.break_(str(broken))
        key = attempt.downstream_key(step)
        question = Question(self._books, step, key, attempt.owner)
        answer: Answer = await self._machine.ask_for("question", question)
        return answer
