"""The timer trigger: NCRONTAB expressions and time spans, retries.

Unlike Azure's host it keeps no schedule status over its end, so that it is never past due.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from shared.idempotency.schedules import Crontab, crontab

from .bindings import BindingError, Function, resolve
from .hostjson import time_span
from .inputs import timer_info
from .invocations import Invocations

log = logging.getLogger("local.host")

type Schedule = Crontab | Interval


@dataclass(frozen=True, slots=True)
class Interval:
    """Slots every so many seconds, counted from the last one."""

    seconds: float

    def after(self, moment: datetime) -> datetime:
        """The slot that follows one at that moment."""
        return moment + timedelta(seconds=self.seconds)


def schedule(text: str) -> Schedule:
    """The schedule in an NCRONTAB expression (six fields, or five without seconds) or a time span.

    Raises ValueError that names the field which is wrong.
    """
    return Interval(time_span(text)) if len(text.split()) == 1 else crontab(text)


class TimerTrigger:
    """Runs one function at the slots of its schedule, one slot at a time."""

    def __init__(
        self,
        function: Function,
        invocations: Invocations,
        environment: Mapping[str, str],
        zone: tzinfo = UTC,
    ) -> None:
        self.function = function
        self._invocations = invocations
        self._zone = zone
        self._run_on_startup = bool(function.trigger.get("runOnStartup", False))
        self._use_monitor = bool(function.trigger.get("useMonitor", True))
        text = resolve(str(function.trigger["schedule"]), environment)
        try:
            self._schedule = schedule(text)
        except ValueError as error:
            raise BindingError(f"schedule: {error}") from None
        self._last: datetime | None = None
        self._clock: asyncio.Task[None] | None = None
        self._runs: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if self._run_on_startup:
            self.run_now()
        self._clock = asyncio.create_task(self._tick(), name=f"timer:{self.function.name}")

    async def stop(self, grace: float) -> None:
        """No further slots; a running one may finish within the grace."""
        if self._clock is not None:
            self._clock.cancel()
            await asyncio.gather(self._clock, return_exceptions=True)
        if self._runs:
            _, late = await asyncio.wait(self._runs, timeout=grace)
            for run in late:
                run.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def run_now(self) -> None:
        """Run the function out of turn, in the background."""
        self._start_run(self._schedule.after(datetime.now(self._zone)))

    async def _tick(self) -> None:
        slot = datetime.now(self._zone)
        while True:
            slot = self._schedule.after(slot)
            await asyncio.sleep(max((slot - datetime.now(self._zone)).total_seconds(), 0))
            # Slots that pass while the function runs are skipped, as Azure's host does.
            run = self._start_run(slot)
            await asyncio.wait([run])
            self._last = datetime.now(self._zone)
            slot = max(slot, self._last - timedelta(seconds=1))

    def _start_run(self, upcoming: datetime) -> asyncio.Task[None]:
        run = asyncio.create_task(self._run(upcoming))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)
        return run

    async def _run(self, upcoming: datetime) -> None:
        """Run once, and again as the function's retry policy says.

        ``upcoming`` is what the status calls Next: in a scheduled run its own slot, for the status is
        written when the run is over.
        """
        # as in Azure's host, which does not monitor what is due more than once a minute
        following = self._schedule.after(upcoming)
        monitored = self._use_monitor and following - upcoming >= timedelta(minutes=1)
        data, metadata = timer_info(last=self._last, next_time=upcoming, monitored=monitored)
        tries = 0
        while not (await self._invocations.run(self.function.name, data, metadata)).succeeded:
            pause = self.function.retry.pause(tries) if self.function.retry else None
            if pause is None:
                return
            tries += 1
            log.info("'%s' runs again in %g s", self.function.name, pause)
            await asyncio.sleep(pause)
