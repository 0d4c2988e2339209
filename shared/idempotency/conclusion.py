"""The end of an attempt: what becomes of its record, and what its caller is told."""

import asyncio
from typing import Any

from .clock import Clock
from .errors import DeadlineExceeded, MalformedContent, PermanentFailure, StoreUnavailable
from .events import Fenced, Observer, ResultNotKept
from .fencing import FencedRecord
from .outcomes import of_refusal
from .records import Handled, Outcome, Policy, Status
from .results import ResultCodec, kept
from .running import Run, Stop

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
    ) -> None:
        self._name = record.record.consumer
        self._record = record
        self._run = run
        self._codec = codec
        self._policy = policy
        self._observer = observer
        self._clock = clock

    async def written(self) -> Handled[R] | None:
        """Write down how the run ended, unless it was superseded; then decide again (None).

        Raises what the caller is to be told when the work is neither done nor refused for good, and
        StoreUnavailable when the conclusion could not be written: the record stays unfinished.

        ==============================  =================================================
        the handler                     its record becomes
        ==============================  =================================================
        returned                        completed, even after it was told to stop
        raised PermanentFailure         failed
        raised, or let itself be        deleted, so that the next delivery starts afresh;
        cancelled                       with steps recorded: released, to be continued
        still runs (a thread)           left alone: its lease will end
        ==============================  =================================================
        """
        run = self._run
        if run.stop is Stop.FENCED:
            self._fenced("renew")
            return None
        if run.still_running:
            raise self._exception()
        error = run.error
        if error is None:
            return await self._completed(run.result)
        if isinstance(error, PermanentFailure):
            return await self._failed(error)
        await self._released()
        raise self._exception() from (None if error is run.cause else error)

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
        return await self._record.write(
            status=status, finished_at=now, expires_at=now + self._policy.retention, **changes
        )

    async def _released(self) -> None:
        """Free the key for a retry; if the store is down, the end of the lease frees it."""
        try:
            if self._record.record.steps:
                released = await self._record.write(status=Status.RELEASED)
            else:
                released = await self._record.delete()
        except StoreUnavailable:
            return
        if not released:
            self._fenced("release")

    def _exception(self) -> BaseException:
        """What the caller is told of a run that neither completed nor failed for good."""
        match self._run.stop:
            case Stop.DEADLINE:
                return DeadlineExceeded(
                    f"consumer {self._name}: the handler did not finish within "
                    f"{self._policy.deadline:g} s"
                )
            case Stop.LEASE_LOST:
                return StoreUnavailable(
                    f"consumer {self._name}: the store did not answer, so the lease could not be "
                    "renewed and the handler was cancelled"
                )
            case _:
                return self._run.cause or self._run.error or asyncio.CancelledError()

    def _fenced(self, operation: str) -> None:
        self._observer(Fenced(consumer=self._name, operation=operation))
