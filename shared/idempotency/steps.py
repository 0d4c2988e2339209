"""The steps of one attempt: each a named effect outside the store, done once and its result kept.

No mark is written before a call. The claim is the mark of them all: in the record of an attempt that
died, any step without a result may have been called, and the next attempt applies the consumer's
policy to each as its handler comes to it. A finished step is recorded by one write; the last one by
the completion itself.
"""

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from .calling import Call, begun, declared_result, ended, over
from .clock import Clock, finished_within
from .doubt import settled
from .downstream import StepCall
from .effects import (
    CannotTell,
    Classify,
    DidNotHappen,
    Effects,
    Happened,
    Rerun,
    TakeoverPolicy,
    refused_for_good,
    unknown_effect,
)
from .errors import (
    AttemptEnded,
    ConfigurationError,
    DeadlineExceeded,
    MalformedContent,
    TransientFailure,
    UncertainEffect,
)
from .events import EffectUnknown, Fenced, Observer, ResultNotKept
from .fencing import FencedRecord
from .journal import Entry, Journal, Standing
from .records import Policy
from .results import ResultCodec, kept
from .step_numbers import check_deadline, settle_of

if TYPE_CHECKING:
    from .attempt import Attempt

WHOLE_HANDLER = "handler"
"""The one step of a handler that names none."""
_LONGEST_NAME = 64


class Steps:
    """Runs the steps of one attempt, and knows at its end what is in doubt.

    ``settled_at``: monotonic seconds from when on nothing of an earlier attempt can land any more.
    """

    def __init__(
        self,
        fenced: FencedRecord,
        effects: Effects,
        policy: Policy,
        observer: Observer,
        clock: Clock,
        *,
        taken_over: bool,
        settled_at: float,
    ) -> None:
        self.journal = Journal(fenced.record, taken_over=taken_over)
        self.superseded = False
        self.quarantine: tuple[str, str] | None = None
        """Why only a person can go on: a stable reason, and a sentence."""
        self._name = fenced.record.consumer
        self._fenced = fenced
        self._effects = effects
        self._settle = settle_of(effects, policy)
        self._policy = policy
        self._observer = observer
        self._clock = clock
        self._settled_at = settled_at
        self._running: set[asyncio.Future[None]] = set()
        self._closed = False

    # -- for the handler

    async def run(
        self,
        attempt: "Attempt",
        name: str,
        call: Call[Any],
        codec: ResultCodec[Any],
        *,
        deadline: float,
        last: bool = False,
        classify: Classify | None = None,
        policy: TakeoverPolicy | None = None,
    ) -> Any:
        """Have one step done, or tell what it gave before; see `Attempt.step`."""
        self._check(name, deadline)
        running = asyncio.get_running_loop().create_future()
        self._running.add(running)
        try:
            known = self.journal.ask(name)
            if known is not None and known.standing is Standing.DONE:
                return self._result_of(known, codec)
            if self.journal.unrecorded():
                await self._record()  # of a step that was called the last, and was not
            step = _StepOf(attempt, name, codec, deadline)
            answer: Happened | DidNotHappen | None = DidNotHappen()
            if self.journal.taken_over or known is not None:
                answer = await self._settled(step, policy or self._effects.policy)
            if isinstance(answer, Happened):
                self._note_done(step, answer.result)
            else:
                if not self._effects.whole_handler:
                    await self._make_ready(step)
                classify = classify or self._effects.unknown_effect or unknown_effect
                await self._call(step, call, classify, doubted=answer is None)
            if not last:
                await self._record()
            return step.result
        finally:
            self._running.discard(running)
            running.set_result(None)

    def codec_of(self, call: Call[Any], result_type: Any) -> ResultCodec[Any]:
        """How a step's results are kept: as ``result_type``, or as the call is annotated."""
        return ResultCodec(declared_result(call) if result_type is None else result_type)

    def _check(self, name: str, deadline: float) -> None:
        """Refuse what cannot be right, before anything runs."""
        if self._closed:
            raise ConfigurationError(
                f"step {name!r} was begun after its attempt had ended: await every step in the handler"
            )
        self._check_goes_on()
        if self._effects.whole_handler:
            if name != WHOLE_HANDLER or self.journal.was_asked(name):
                raise ConfigurationError(
                    f"consumer {self._name} declares its handler as one effect (whole_handler), so "
                    f"there is no step {name!r} in it"
                )
            return
        if not 0 < len(name) <= _LONGEST_NAME:
            raise ConfigurationError(
                f"a step's name has 1 to {_LONGEST_NAME} characters, not {len(name)}"
            )
        if self.journal.was_asked(name):
            raise ConfigurationError(
                f"step {name!r} was asked for twice in one attempt: each effect needs a name of its own"
            )
        check_deadline(name, deadline, self._effects, self._policy)

    def _check_goes_on(self) -> None:
        if self.superseded:
            raise AttemptEnded(
                f"consumer {self._name}: another attempt has taken over; nothing that is done here counts"
            )
        if self.quarantine is not None:
            raise AttemptEnded(f"consumer {self._name}: quarantined: {self.quarantine[1]}")

    def _result_of(self, entry: Entry, codec: ResultCodec[Any]) -> Any:
        """What an earlier attempt's step returned."""
        if entry.result is None:
            self._quarantined(
                "StepResultNotKept",
                f"step {entry.name!r} is done, but its result could not be kept, and is needed again",
            )
        try:
            return codec.decode(entry.result)
        except ValueError as error:
            self._quarantined(
                "StepResultUnreadable",
                f"step {entry.name!r} is done, but its result is no longer of its type: {error}",
            )

    # -- an earlier attempt's step in doubt

    async def _settled(
        self, step: "_StepOf", policy: TakeoverPolicy
    ) -> Happened | DidNotHappen | None:
        """What the policy makes of a step in doubt; None: call again under the same key."""
        self._stands(step, Standing.DOUBTED)
        await self._clock.sleep(max(0.0, self._settled_at - self._clock.monotonic()))
        self._check_goes_on()
        if isinstance(policy, Rerun) and not self._effects.whole_handler:
            # now, so that nothing delays a call that relies on its key
            await self._make_ready(step)
        answer = await settled(
            step.attempt,
            step.name,
            policy,
            first_attempt_at=self._fenced.record.started_at,
            deadline=step.deadline,
            settle=self._settle,
            clock=self._clock,
        )
        if isinstance(answer, CannotTell):
            self._quarantined("UnknownEffect", answer.why)
        if isinstance(answer, DidNotHappen):
            self.journal.settle_as_absent(step.name)
        return answer

    # -- this attempt's call

    async def _make_ready(self, step: "_StepOf") -> None:
        """See that the lease outlives the call; else two attempts might call at once."""
        if step.attempt.deadline - self._clock.monotonic() < step.deadline:
            raise DeadlineExceeded(
                f"step {step.name!r} is not begun: the handler's deadline is nearer than its own"
            )
        if self._fenced.lease_left() > step.deadline:
            return
        if not await self._fenced.renew():
            self._lost("renew")
        if self._fenced.lease_left() <= step.deadline:
            raise TransientFailure(
                f"step {step.name!r} is not begun: the lease could not be renewed in time to cover it"
            )

    async def _call(
        self, step: "_StepOf", call: Call[Any], classify: Classify, *, doubted: bool
    ) -> None:
        """Call, and note what came of it; raises what the handler is to be told if not its result."""
        self._check_goes_on()
        self._stands(step, Standing.OPEN)
        key = step.attempt.downstream_key(step.name)
        calling = begun(StepCall(key, step.attempt.trace_parent), call)
        own_deadline = None if self._effects.whole_handler else step.deadline
        try:
            self._note_done(step, await over(calling, own_deadline, self._clock))
        except asyncio.CancelledError:
            await ended(calling)
            if calling.cancelled() or calling.exception() is not None:
                self._stands(step, Standing.UNCERTAIN)
            else:
                self._note_done(step, calling.result())
            raise
        except Exception as error:
            if classify(error):
                self._uncertain(step, error)
            if doubted and not refused_for_good(error):
                # "not now" tells nothing of the earlier attempt's call
                self._stands(step, Standing.DOUBTED)
            else:
                self.journal.settle_as_absent(step.name)
            raise

    def _uncertain(self, step: "_StepOf", error: Exception) -> NoReturn:
        self._stands(step, Standing.UNCERTAIN)
        kind = type(error).__name__
        self._observer(
            EffectUnknown(
                consumer=self._name, key=self._fenced.record.key, step=step.name, error=kind
            )
        )
        raise UncertainEffect(f"step {step.name!r}: what it did is not known ({kind})") from error

    def _stands(self, step: "_StepOf", standing: Standing) -> Entry:
        return self.journal.stands(
            step.name, standing, at=self._clock.now(), deadline=step.deadline
        )

    def _note_done(self, step: "_StepOf", result: Any) -> None:
        """Note a step as done; every caller, now and later, gets what can be kept of its result."""
        room = self._policy.max_result_bytes - self.journal.bytes_of_results()
        text, cause = kept(result, step.codec, max(room, 0))
        self._stands(step, Standing.DONE).result = text
        step.result = result if text is None else step.codec.decode(text)
        if text is None and not self._effects.whole_handler:
            self._not_kept(step.name, cause)

    # -- the record

    async def _record(self) -> None:
        """Write down what is done, as far as the attempt still may."""
        if self._closed:
            return  # the attempt's conclusion has been, or is being, written with it
        entries = self.journal.unrecorded()
        for entry in entries:
            # by the time anybody relies on it; concurrent steps need not wait
            entry.recorded = True
        try:
            try:
                written = await self._fenced.write(steps=self.journal.steps())
            except MalformedContent as error:  # the store has a limit of its own
                for entry in entries:
                    entry.result = None
                    self._not_kept(entry.name, str(error))
                written = await self._fenced.write(steps=self.journal.steps())
        except BaseException:
            for entry in entries:
                entry.recorded = False
            raise
        if not written:
            self._lost("step")

    def _not_kept(self, name: str, cause: str) -> None:
        self._observer(
            ResultNotKept(
                consumer=self._name, key=self._fenced.record.key, cause=f"step {name!r}: {cause}"
            )
        )

    def _lost(self, operation: str) -> NoReturn:
        self.superseded = True
        self._observer(Fenced(consumer=self._name, operation=operation))
        self._check_goes_on()
        raise AssertionError

    def _quarantined(self, reason: str, description: str) -> NoReturn:
        self.quarantine = self.quarantine or (reason, description)
        self._check_goes_on()
        raise AssertionError

    # -- for the conclusion

    async def close(self, *, patient: bool) -> None:
        """End the attempt's steps; ``patient``: calls that nobody awaits are given until their end."""
        if patient and self._running:
            waiting = asyncio.ensure_future(asyncio.wait(set(self._running)))
            if not await finished_within(waiting, self._fenced.lease_left(), self._clock):
                waiting.cancel()
        self._closed = True

    def settle_left(self) -> float:
        """Seconds from now until nothing of any attempt's calls can land any more."""
        if self.journal.in_flight():
            return self._settle
        return max(0.0, self._settled_at - self._clock.monotonic())


class _StepOf:
    """One step on its way: what it is, and its result once there is one."""

    def __init__(
        self, attempt: "Attempt", name: str, codec: ResultCodec[Any], deadline: float
    ) -> None:
        self.attempt = attempt
        self.name = name
        self.codec = codec
        self.deadline = deadline
        self.result: Any = None
