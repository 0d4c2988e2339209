"""The broker, and the adapter that settles."""

import functools
from collections.abc import Callable
from typing import Any

from ..errors import StoreUnavailable, TransientFailure
from ..fingerprint import raw_bytes
from ..protected import Protected
from ..records import Delivery, Handled, Outcome
from ..results import ResultCodec
from .ledger import Ledger
from .machine import Machine
from .process import Process
from .scenario import KEY, Scenario
from .truth import Broken
from .work import HandlerFailed, Work

AT_BROKER, RUNNING, SETTLED = "at broker", "running", "settled"


class Deliveries:
    """Hands messages out, again until each is settled, to consumers that may die meanwhile."""

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine,
        ledger: Ledger,
        work: Work,
        make: Callable[[], Protected],
    ) -> None:
        self.where = [AT_BROKER for _ in scenario.messages]
        self.handed_out = [0 for _ in scenario.messages]
        self.processes: dict[int, Process] = {}
        """The delivery under way, by the number of its message."""
        self._scenario = scenario
        self._machine = machine
        self._ledger = ledger
        self._work = work
        self._make = make
        self._consumers: dict[int, Protected] = {}
        self._groups = 0
        self._completed_at: dict[int, float] = {}
        self._codec: ResultCodec[Any] = ResultCodec()
        self._fingerprints = [raw_bytes(m.content.encode()) for m in scenario.messages]

    def all_settled(self) -> bool:
        return all(where is SETTLED for where in self.where)

    def memory(self, now: float) -> float:
        """How long ago the living process completed the work, if all share one; -1 if it did not."""
        if not self._scenario.one_process:
            return -1
        at = [self._completed_at[group] for group in self._consumers if group in self._completed_at]
        return now - at[0] if at else -1

    def hand_out(self, index: int) -> None:
        """Hand a message to a consumer: in the living process, or in one of its own."""
        message = self._scenario.messages[index]
        self.handed_out[index] += 1
        number = self.handed_out[index]
        if number > self._scenario.policy.max_delivery_count:
            raise Broken(f"message {message.name} comes back for ever and is never settled")
        group = self._group()
        process = Process(index, message, number, group)
        self.where[index] = RUNNING
        self.processes[index] = process
        delivery = Delivery(
            key=KEY,
            fingerprint=self._fingerprints[index],
            redelivered=message.redelivered or number > 1,
            delivery_count=number,
            sequence_number=message.sequence,
            body=message.content.encode(),
        )
        again = ", redelivered" if delivery.redelivered else ""
        self._machine.note(process.name, "deliver", f"content {message.content!r}{again}")
        beginning = (message.content, delivery.redelivered)
        self._machine.start(process, beginning, lambda: self._handle(process, delivery))

    def crash(self, index: int) -> None:
        """The process of a delivery dies, with every other delivery in it; all of them come back."""
        group = self.processes[index].group
        del self._consumers[group]
        for process in [p for p in self.processes.values() if p.group == group]:
            self._machine.note(process.name, "process", "FAULT crash: nothing of it runs any more")
            for run in process.runs:
                run.failed = True
            self._leave(process, AT_BROKER)

    def _group(self) -> int:
        """The process to deliver to."""
        if self._scenario.one_process and self._consumers:
            return next(iter(self._consumers))
        self._groups += 1
        self._consumers[self._groups] = self._make()
        return self._groups

    async def _handle(self, process: Process, delivery: Delivery) -> None:
        """One delivery: handled by the real consumer, then settled as an adapter settles."""
        consumer = self._consumers[process.group]
        try:
            handled = await consumer.handle(
                delivery, functools.partial(self._work.run, process), self._codec
            )
        except (StoreUnavailable, TransientFailure, HandlerFailed) as error:
            for run in process.runs:
                run.failed = True
            self._comes_back(process, f"raised {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever else it raises is a finding
            self._machine.break_(f"{process.name} ended in {type(error).__name__}: {error}")
        else:
            try:
                await self._settle(process, delivery, handled)
            except Broken as broken:
                self._machine.break_(str(broken))

    async def _settle(self, process: Process, delivery: Delivery, handled: Handled[Any]) -> None:
        note = self._machine.note
        with_result = f" with {handled.result}" if handled.result is not None else ""
        note(process.name, "outcome", f"{handled.outcome}{with_result}")
        self._ledger.told(handled, delivery.fingerprint or "")
        if handled.outcome is Outcome.PROCESSED:
            self._completed_at[process.group] = self._machine.now
        if handled.outcome is Outcome.IN_FLIGHT:
            self._comes_back(process, "in flight")
            return
        await self._machine.turn("settle", "settle")
        match handled.outcome:
            case Outcome.MISMATCH:
                note(process.name, "settle", "dead-lettered: other content")
            case Outcome.QUARANTINED | Outcome.FAILED | Outcome.DUPLICATE if handled.reason:
                note(process.name, "settle", f"dead-lettered: {handled.description}")
            case _:
                self._ledger.acknowledge()
                note(process.name, "settle", "acknowledged")
        self._leave(process, SETTLED)

    def _comes_back(self, process: Process, why: str) -> None:
        self._machine.note(process.name, "settle", f"not acknowledged ({why}): comes back")
        self._leave(process, AT_BROKER)

    def _leave(self, process: Process, where: str) -> None:
        self._machine.abandon(process)
        self.where[process.index] = where
        del self.processes[process.index]
