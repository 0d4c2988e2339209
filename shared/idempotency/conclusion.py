"""The end of an attempt: what becomes of its record, and what its caller is told."""

import asyncio
from typing import Any

from .clock import Clock
from .documents import AUDIT
from .errors import (
    DeadlineExceeded,
    MalformedContent,
    PermanentFailure,
    StoreUnavailable,
    UncertainEffect,
)
from .events import Fenced, Observer, ResultNotKept, StepsChanged
from .fencing import FencedRecord
from .outcomes import of_quarantined, of_refusal
from .records import Handled, Outcome, Policy, Status
from .results import ResultCodec, kept
from .running import Run, Stop
from .steps import Steps

_LONGEST_REASON = 100
_LONGEST_DESCRIPTION = 1_000
"""Characters of a recorded refusal: a record must be kept, and a dead letter take it."""


class Conclusion[R]:
    """How one attempt's run ended, to be written down by one fenced write."""

    def __init__(
        self,
        record: FencedRecord,
        run: Run[R],
        codec: ResultCodec[R],
        policy: Policy,
        observer: Observer,
        clock: Clock,
        *,
        steps: Steps | None = None,
    ) -> None:
        self._name = record.record.consumer
        self._record = record
        self._run = run
        self._codec = codec
        self._policy = policy
        self._observer = observer
        self._clock = clock
        self._steps = steps

    async def written(self) -> Handled[R] | None:
        """Write down how the run ended, unless it was superseded; then decide again (None).

        Raises what the caller is to be told when the work is neither done nor refused for good, and
        StoreUnavailable when the conclusion could not be written: the record stays unfinished.

        ==============================  =================================================
        the handler                     its record becomes
        ==============================  =================================================
        met what only a person can      quarantined
        settle
        left a step open or uncertain,  uncertain, however the handler ended
        or an earlier one in doubt
        returned                        completed, even after it was told to stop
        raised PermanentFailure         failed
        raised, or let itself be        deleted, so that the next delivery starts afresh;
        cancelled                       with steps done, or after an earlier attempt:
                                        released, to be continued; with declared effects
                                        after a takeover: uncertain, since what the
                                        earlier attempt called is still in doubt
        still runs (a thread)           left alone: its lease will end
        ==============================  =================================================
        """
        run, steps = self._run, self._steps
        if steps is not None:
            await steps.close(patient=run.stop is None and not run.still_running)
        if run.stop is Stop.FENCED:
            self._fenced("renew")
            return None
        if run.still_running:
            raise self._exception()
        if steps is not None:
            if steps.superseded:
                return None
            if steps.journal.unknown() and steps.quarantine is None:
                raise await self._uncertain(steps)
            if why := steps.quarantine or self._out_of_reach(steps):
                return await self._quarantined(*why)
        error = run.error
        if error is None:
            return await self._completed(run.result)
        if isinstance(error, PermanentFailure):
            return await self._failed(error)
        await self._released()
        raise self._exception() from (None if error is run.cause else error)

    def _out_of_reach(self, steps: Steps) -> tuple[str, str] | None:
        """Why the run cannot be believed to have settled what an earlier attempt left in doubt.

        A handler that returned, or refused for good, does not run again; one that raised does.
        """
        error, journal = self._run.error, steps.journal
        if error is not None and not isinstance(error, PermanentFailure):
            return None
        end = "has returned" if error is None else f"refuses for good ({error})"
        if left := journal.out_of_reach():
            named = ", ".join(left)
            return "UnknownEffect", f"the handler {end} without asking for {named}, left in doubt"
        unsettled = journal.none_asked() if error is None else not journal.doubt_was_settled
        if journal.taken_over and unsettled and not journal.ruled_out:
            return (
                "UnknownEffect",
                f"an attempt died and may have had an effect, and the handler now {end} without "
                "coming to it",
            )
        return None

    async def _quarantined(self, reason: str, description: str) -> Handled[Any] | None:
        if not await self._write(
            Status.QUARANTINED,
            failure_reason=reason[:_LONGEST_REASON],
            failure_description=description[:_LONGEST_DESCRIPTION],
        ):
            self._fenced("quarantine")
            return None
        return of_quarantined(self._record.record)

    async def _uncertain(self, steps: Steps) -> BaseException:
        """Note the doubt; what the caller is to be told. If the store is down, the lease ends."""
        try:
            if not await self._write(Status.UNCERTAIN, settle=steps.settle_left()):
                self._fenced("uncertain")
        except StoreUnavailable:
            pass
        error = self._run.error
        is_told = isinstance(error, Exception) and not isinstance(error, PermanentFailure)
        if error is not None and is_told and not steps.journal.in_flight():
            return error
        named = ", ".join(steps.journal.unknown())
        uncertain = UncertainEffect(
            f"consumer {self._name}: the effect of {named} is not known; the next delivery settles it as "
            "the consumer's policy says"
        )
        uncertain.__cause__ = error
        return uncertain

    async def _completed(self, result: R) -> Handled[R] | None:
        text, cause = kept(result, self._codec, self._policy.max_result_bytes)
        try:
            completed = await self._finished(Status.COMPLETED, steps=(), result=text)
        except MalformedContent as error:  # the store has a limit of its own
            text, cause = None, str(error)
            completed = await self._finished(Status.COMPLETED, steps=(), result=None)
        if not completed:
            self._fenced("complete")
            return None
        self._note_changes()
        if text is None:
            self._observer(
                ResultNotKept(consumer=self._name, key=self._record.record.key, cause=cause)
            )
        return Handled(
            outcome=Outcome.PROCESSED,
            result=None if text is None else self._codec.decode(text),
            result_kept=text is not None,
            attempt=self._record.record.attempt,
        )

    async def _failed(self, failure: PermanentFailure) -> Handled[Any] | None:
        if not await self._finished(
            Status.FAILED,
            failure_reason=failure.reason[:_LONGEST_REASON],
            failure_description=failure.description[:_LONGEST_DESCRIPTION],
        ):
            self._fenced("fail")
            return None
        return of_refusal(failure, attempt=self._record.record.attempt)

    async def _finished(self, status: Status, **changes: Any) -> bool:
        now = self._clock.now()
        return await self._write(
            status, finished_at=now, expires_at=now + self._policy.retention, **changes
        )

    async def _write(self, status: Status, **changes: Any) -> bool:
        """Write the record with its steps as they stand; too large for the store: without results."""
        if self._steps is None or "steps" in changes:
            return await self._record.write(status=status, **changes)
        journal = self._steps.journal
        try:
            return await self._record.write(status=status, steps=journal.steps(), **changes)
        except MalformedContent:
            steps = journal.steps(with_results=False)
            return await self._record.write(status=status, steps=steps, **changes)

    async def _released(self) -> None:
        """Free the key for a retry; if the store is down, the end of the lease frees it."""
        try:
            if self._steps is not None and self._steps.journal.taken_over:
                left = self._steps.settle_left()
                released = await self._write(Status.UNCERTAIN, settle=left)
            elif self._is_to_be_continued():
                released = await self._write(Status.RELEASED)
            else:
                released = await self._record.delete()
        except StoreUnavailable:
            return
        if not released:
            self._fenced("release")

    def _is_to_be_continued(self) -> bool:
        """Whether the record must outlive a clean failure.

        With steps done it holds their results. After an earlier attempt it holds what that attempt
        worked on: it may have had its effect, so that other content is still a mismatch. And what a
        person did to it, and why, is not to be forgotten.
        """
        if AUDIT in self._record.record.extra:
            return True
        if self._steps is not None:
            return self._steps.journal.any_done()
        return bool(self._record.record.steps) or self._record.record.attempt > 1

    def _note_changes(self) -> None:
        if self._steps is None:
            return
        unused, reordered = self._steps.journal.changed()
        if unused or reordered:
            key = self._record.record.key
            self._observer(
                StepsChanged(consumer=self._name, key=key, unused=unused, reordered=reordered)
            )

    def _exception(self) -> BaseException:
        """What the caller is told of a run that neither completed nor failed for good."""
        match self._run.stop:
            case Stop.DEADLINE:
                return DeadlineExceeded(
                    f"consumer {self._name}: the handler did not finish within "
                    f"{self._policy.deadline:g} s and was cancelled; if it needs longer, raise its policy's "
                    "deadline"
                )
            case Stop.LEASE_LOST:
                return StoreUnavailable(
                    f"consumer {self._name}: the store did not answer, so the lease could not be "
                    "renewed and the handler was cancelled; the message comes back"
                )
            case _:
                return self._run.cause or self._run.error or asyncio.CancelledError()

    def _fenced(self, operation: str) -> None:
        self._observer(Fenced(consumer=self._name, operation=operation))
