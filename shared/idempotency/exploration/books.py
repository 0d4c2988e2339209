"""The provider's books: which effects it had, and which calls are on their way to it."""

from collections.abc import Callable, Iterator

import msgspec

from ..effects import Answer, DidNotHappen, Happened
from .plan import Plan
from .process import Call
from .truth import Broken, Run


class StepCall(Call):
    """A call of a step: it lands within `settle` of when its caller stopped waiting, or never.

    That is what `settle` states about the provider. A caller stops waiting when it is told an error or
    is cancelled; one that dies or stalls says nothing, and counts as waiting until the step's deadline.
    """

    outlives_its_process = True

    def __init__(self, books: "Books", run: Run, step: str, key: str) -> None:
        identity = ("call", step, key, run.content)
        super().__init__(f"call {step}", lambda: books.lands(self), identity, self.is_over)
        self.run = run
        self.step = step
        self.key = key
        self.lands_until = books.now() + books.plan.deadline + books.plan.settle
        self.is_closed = False
        """It was answered, or refused."""
        self._books = books

    def is_over(self) -> bool:
        """Whether it can have no effect any more."""
        if self.is_closed or self._books.now() > self.lands_until:
            return True
        return self._books.recognises(self.key, at=self.lands_until)

    def may_be_declined(self) -> bool:
        """Whether an honest provider may refuse it for good: it has not done the step before."""
        return self.step not in self._books.steps()

    def refused(self, *, for_good: bool) -> None:
        """The provider has said no: this call has no effect."""
        self.is_closed = True
        if for_good:
            self._books.declined.add(self.run.owner)

    def seconds_left(self) -> float:
        return self.lands_until - self._books.now()

    def given_up(self) -> None:
        self.lands_until = min(self.lands_until, self._books.now() + self._books.plan.settle)


class Question(Call):
    """A question what became of a step, by the attempt ``owner``."""

    def __init__(self, books: "Books", step: str, key: str, owner: str) -> None:
        super().__init__(f"ask about {step}", lambda: books.answer(step, key))
        self._books = books
        self._owner = owner

    def cannot_be_told(self) -> None:
        """The provider answers that it cannot tell."""
        self._books.told_nothing.add(self._owner)


class Happening(msgspec.Struct, frozen=True):
    """An effect at the provider, at ``at`` (virtual seconds)."""

    step: str
    key: str
    content: str
    by: str
    at: float


class Books:
    """The truth about the steps of one key, at a provider such as the plan has it."""

    def __init__(
        self, plan: Plan, now: Callable[[], float], note: Callable[[str, str, str], None]
    ) -> None:
        self.plan = plan
        self.now = now
        self.happened: list[Happening] = []
        self.calls: list[StepCall] = []
        self.told_nothing: set[str] = set()
        """The attempts whose question it could not answer."""
        self.declined: set[str] = set()
        """The attempts whose call it refused for good."""
        self._note = note

    def steps(self) -> set[str]:
        """The steps that have happened."""
        return {entry.step for entry in self.happened}

    def recognises(self, key: str, *, at: float) -> bool:
        """Whether a call under this key would be taken for a repetition, now and until ``at``."""
        return any(
            entry.key == key and at < entry.at + self.plan.key_retention for entry in self.happened
        )

    def lands(self, call: StepCall) -> str:
        """A call arrives and is answered with its receipt; under a known key nothing new happens."""
        call.is_closed = True
        step, by = call.step, call.run.delivery
        if self.recognises(call.key, at=self.now()):
            self._note(by, "effect", f"{step}: the key is known, nothing new happens")
            return self.receipt(step)
        earlier = [entry for entry in self.happened if entry.step == step]
        self.happened.append(Happening(step, call.key, call.run.content, by, self.now()))
        self._note(by, "effect", f"{step} HAPPENS")
        if earlier:
            raise Broken(f"step {step!r} happened twice: called by {earlier[0].by}, and by {by}")
        return self.receipt(step)

    def answer(self, step: str, key: str) -> Answer:
        """What it says of a step, truthfully."""
        if any(entry.key == key for entry in self.happened):
            return Happened(self.receipt(step))
        return DidNotHappen()

    def receipt(self, step: str) -> str:
        """The result of a step, which is the same whoever called it."""
        return f"receipt for {step}"

    def on_their_way(self) -> Iterator[StepCall]:
        """Calls that may still have their effect."""
        return (call for call in self.calls if not call.is_over())

    def may_land(self, step: str, but: StepCall | None = None) -> bool:
        """Whether a call of that step, other than ``but``, may still have its effect."""
        return any(call.step == step and call is not but for call in self.on_their_way())
