"""The attempt a handler runs in: what business code may ask of the module."""

import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, overload

import msgspec

from .downstream import downstream_uuid
from .errors import ConfigurationError

if TYPE_CHECKING:
    from .effects import Classify, TakeoverPolicy
    from .steps import Steps


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at the work.

    ``number`` counts the tries at this key, from 1. ``owner`` is the unique id that fences its
    writes. ``deadline`` is when the handler is cancelled, on the monotonic clock, in seconds.
    ``trace_parent`` is the trace context of the delivery.
    """

    consumer: str
    key: str
    number: int
    owner: str
    deadline: float
    trace_parent: str | None = None
    steps: "Steps | None" = None
    """The attempt's steps, where its consumer has declared its effects; see `step`."""

    def downstream_key(self, step: str) -> str:
        """The key to send to the service that ``step`` calls: safe as a header, and a UUID's text.

        Equal in every attempt at this consumer's message and step, different for any other.
        """
        return str(self.downstream_uuid(step))

    def downstream_uuid(self, step: str) -> uuid.UUID:
        """`downstream_key` as a UUID, for services that take nothing else."""
        return downstream_uuid(self.consumer, self.key, step)

    @overload
    async def step[R](
        self,
        name: str,
        call: Callable[[], Awaitable[R]],
        *,
        deadline: float,
        last: bool = False,
        result_type: Any = None,
        unknown_effect: "Classify | None" = None,
        policy: "TakeoverPolicy | None" = None,
    ) -> R: ...

    @overload
    async def step[R](
        self,
        name: str,
        call: Callable[[], R],
        *,
        deadline: float,
        last: bool = False,
        result_type: Any = None,
        unknown_effect: "Classify | None" = None,
        policy: "TakeoverPolicy | None" = None,
    ) -> R: ...

    async def step(
        self,
        name: str,
        call: Callable[[], Any],
        *,
        deadline: float,
        last: bool = False,
        result_type: Any = None,
        unknown_effect: "Classify | None" = None,
        policy: "TakeoverPolicy | None" = None,
    ) -> Any:
        """Have one effect outside the store, once: its result is kept, and given back to later attempts.

        ``name`` is unique within the handler, and must stay the same for as long as unfinished
        records may exist: it is part of the downstream key. ``call`` is asynchronous, or runs in a
        thread; it takes no arguments and is cancelled after ``deadline`` seconds, which must be below
        the lease. ``last``: no step follows, so the result is recorded with the completion, which
        saves a round trip. ``result_type`` is what the result is read back as; by default what the
        call is annotated to return, else plain JSON. ``unknown_effect`` and ``policy`` apply to this
        step instead of what the consumer's `Effects` say.

        Raises UncertainEffect when what the call did is not known, and whatever the call raised when
        it surely did nothing; TransientFailure when it was not begun (the lease is too short, the
        provider cannot be asked); StoreUnavailable when it is done and could not be recorded;
        AttemptEnded when nothing more may run; ConfigurationError for a name that is used twice, or a
        consumer that has not declared its effects.
        """
        if self.steps is None:
            raise ConfigurationError(
                f"consumer {self.consumer} has not said what to do when an effect is in doubt: give "
                "Consumer effects=Effects(policy=...). An Inbox has no effects outside its store"
            )
        return await self.steps.run(
            self,
            name,
            call,
            self.steps.codec_of(call, result_type),
            deadline=deadline,
            last=last,
            classify=unknown_effect,
            policy=policy,
        )

    def rule_out_effects(self) -> None:
        """State that a message like this one never has an effect outside the store.

        For handlers that have their steps only for some messages, decided by the message alone.
        After a crash, a handler that returns without coming to any step leaves a doubt, and its
        message is quarantined, unless it says this.
        """
        if self.steps is not None:
            self.steps.journal.rule_out()


# A context variable is per task: nested and concurrent calls each see their own attempt.
_current: ContextVar[Attempt] = ContextVar("idempotency_attempt")


def current_attempt() -> Attempt:
    """The attempt of the calling handler; raises ConfigurationError outside a protected handler."""
    attempt = _current.get(None)
    if attempt is None:
        raise ConfigurationError(
            "there is no current attempt: current_attempt() works only inside a handler that is "
            "protected by idempotent(...)"
        )
    return attempt


def enter(attempt: Attempt) -> None:
    """Make ``attempt`` the current one of the calling task."""
    _current.set(attempt)
