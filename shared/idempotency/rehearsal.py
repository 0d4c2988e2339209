"""For tests of your handlers: does every effect happen once, whatever crashes, repeats or comes late?

`rehearse` plays one delivery many times, each time with something going wrong at another place: the
process dies after a call to the store or of an effect, the answer of an effect is lost, an effect lands
when nobody waits for it any more, the message comes twice, at once, or much later. Time is virtual.

    report = await rehearse(
        lambda process: Consumer(
            "charge_payment",
            process.store,
            clock=process.clock,
            effects=Effects(policy=Reconcile(process.ask)),
        ),
        lambda process: lambda: charge(order, provider=process.effect("charge", result="r-1")),
        Delivery(key="order-1"),
        effects=["charge"],
    )
    assert report.ok, report
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .clock import Clock
from .protected import Protected
from .records import Delivery, Handled, Outcome
from .results import ResultCodec
from .staging import Died, Play, Process, Stage
from .stores.memory import MemoryStore

__all__ = ["Finding", "Play", "Process", "Report", "rehearse"]

_MOST_DELIVERIES = 15
_MOST_PLAYS = 2_000
_LONG = 3 * 24 * 3600.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that did not hold in one play, with all that happened in it."""

    play: str
    problem: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.play}: {self.problem}", *(f"    {line}" for line in self.trace)])


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a rehearsal: ``quarantined`` names the plays that ended with a person."""

    plays: int
    findings: tuple[Finding, ...] = ()
    quarantined: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        head = f"{self.plays} plays, {len(self.findings)} findings, {len(self.quarantined)} quarantined"
        return "\n".join([head, *map(str, self.findings)])


async def rehearse(
    consumer: Callable[[Process], Protected],
    handler: Callable[[Process], Callable[[], Awaitable[Any]]],
    delivery: Delivery,
    *,
    effects: Sequence[str],
    count: Callable[[Any], Mapping[str, int]] | None = None,
    store: Callable[[Clock], Any] = MemoryStore,
    codec: ResultCodec[Any] | None = None,
    honours_keys: bool = False,
    late: float = 5.0,
    crashes: int = 1,
) -> Report:
    """Play a delivery with everything going wrong in turn; see the module.

    ``consumer`` and ``handler`` are made for each process. ``effects`` are those that must happen once
    in every play, be they called through `Process.effect` or counted by ``count`` in the store as it
    stands at the end. ``honours_keys``: whether the services behind the effects recognise the
    downstream key. ``late``: seconds after which a late effect lands; below the consumer's settle.
    ``crashes``: how many processes die in one play, 1 or 2.
    """

    async def played(play: Play) -> Stage:
        stage = Stage(play, store, honours_keys, late)
        names = (f"process {number}" for number in itertools.count(1))
        make = lambda: Process(stage, next(names))  # noqa: E731
        await stage.clock.run(
            _played(play, stage, make, consumer, handler, delivery, codec or ResultCodec())
        )
        await stage.close()
        return stage

    first = await played(Play(name="nothing goes wrong"))
    findings, quarantined, plays = [*_findings(first, effects, count)], [], 1
    pending = [*_plays(first.calls)]
    while pending and plays < _MOST_PLAYS:
        play = pending.pop(0)
        stage = await played(play)
        plays += 1
        findings += _findings(stage, effects, count)
        if stage.trace[-1].endswith(Outcome.QUARANTINED):
            quarantined.append(play.name)
        if 0 < len(play.crashes) < crashes:
            pending += _further_crashes(play, stage.calls)
    return Report(plays=plays, findings=tuple(findings), quarantined=tuple(quarantined))


def _plays(calls: Sequence[str]) -> Iterator[Play]:
    """Everything that can go wrong once in a play that makes these calls."""
    yield Play(name="the message comes twice", again=0.0)
    yield Play(name="the message comes again days later", again=_LONG)
    yield Play(name="the message comes twice at once", at_once=True)
    for number, call in enumerate(calls):
        dies = frozenset({number})
        yield Play(name=f"dies after call {number} ({call})", crashes=dies)
        yield Play(name=f"twice at once, one dies after call {number}", crashes=dies, at_once=True)
        if call.startswith("effect "):
            for fault in ("unanswered", "lost", "late"):
                yield Play(name=f"call {number} ({call}) is {fault}", fault=fault, at=number)


def _further_crashes(play: Play, calls: Sequence[str]) -> Iterator[Play]:
    for number in range(max(play.crashes) + 1, len(calls)):
        yield msgspec.structs.replace(
            play,
            name=f"{play.name}, then another after call {number} ({calls[number]})",
            crashes=play.crashes | {number},
        )


async def _played(
    play: Play,
    stage: Stage,
    make: Callable[[], Process],
    consumer: Callable[[Process], Protected],
    handler: Callable[[Process], Callable[[], Awaitable[Any]]],
    delivery: Delivery,
    codec: ResultCodec[Any],
) -> None:
    """Hand the message out, as often as the play wants it, until it is settled each time."""

    async def settled() -> None:
        process, protected = None, None
        for number in range(_MOST_DELIVERIES):
            if process is None or protected is None or process.is_dead:
                process = make()
                protected = consumer(process)
            redelivered = delivery.redelivered or number > 0
            handed = msgspec.structs.replace(delivery, redelivered=redelivered)
            if await _delivered(stage, process, protected, handler, handed, codec):
                return
            await stage.clock.sleep(min(2.0**number, 60.0))
        stage.note("broker", "gives up: NEVER SETTLED")

    await asyncio.gather(settled(), *([settled()] if play.at_once else []))
    if play.again is not None:
        await stage.clock.sleep(play.again)
        await settled()


async def _delivered(
    stage: Stage,
    process: Process,
    protected: Protected,
    handler: Callable[[Process], Callable[[], Awaitable[Any]]],
    delivery: Delivery,
    codec: ResultCodec[Any],
) -> bool:
    """Whether a delivery was settled; otherwise it comes back."""
    stage.note(process.name, "is handed the message" + ", redelivered" * delivery.redelivered)
    try:
        handled: Handled[Any] = await protected.handle(delivery, handler(process), codec)
    except Died:
        return False
    except Exception as error:  # noqa: BLE001 - whatever it is, the message comes back
        stage.note(process.name, f"raises {type(error).__name__}: {error}")
        return False
    stage.note(process.name, str(handled.outcome))
    return handled.outcome is not Outcome.IN_FLIGHT


def _findings(
    stage: Stage, effects: Sequence[str], count: Callable[[Any], Mapping[str, int]] | None
) -> Iterator[Finding]:
    happened = Counter({name: len(results) for name, results in stage.happened.items()})
    happened.update(count(stage.store) if count is not None else {})
    may_be_missing = stage.trace[-1].endswith((Outcome.QUARANTINED, Outcome.FAILED))
    problems = [
        f"effect {name!r} happened {happened[name]} times"
        for name in dict.fromkeys([*effects, *happened])
        if happened[name] > 1
    ]
    problems += [
        f"effect {name!r} never happened"
        for name in effects
        if not happened[name] and not may_be_missing
    ]
    if any("NEVER SETTLED" in line for line in stage.trace):
        problems.append("the message was never settled")
    for problem in problems:
        yield Finding(play=stage.play.name, problem=problem, trace=tuple(stage.trace))
