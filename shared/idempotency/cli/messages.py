"""Dead letters at the command line."""

from enum import StrEnum
from typing import Annotated

import typer

from ..dead_letters import Choice, Verdict, admit, by_record
from ..resending import DeadLetters
from . import views
from .exits import Ended, Exit, run
from .options import AsJson, Where, Yes
from .places import Target

_MOST_OF_ONE_KEY = 1000


class Mode(StrEnum):
    """See `dead_letters.Mode`."""

    SKIP = "skip"
    FORCE = "force"


def resend(
    context: typer.Context,
    entity: Annotated[
        str, typer.Argument(help="A queue, or TOPIC/SUBSCRIPTION (all its subscriptions get it).")
    ],
    reason: Annotated[
        list[str] | None, typer.Option(help="Only those set aside for this; repeatable.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only those of this deduplication key.")] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="skip: leave what its record would refuse anyway. force: re-send all of them, past "
            "memories and age limits; the record still decides."
        ),
    ] = Mode.SKIP,
    consumer: Annotated[
        str | None,
        typer.Option(help="Whose records decide, else of tool.idempotency.sources."),
    ] = None,
    to: Annotated[str | None, typer.Option(help="Another queue than they came from.")] = None,
    quarantine_queue: Annotated[
        bool, typer.Option("--quarantine-queue", help="ENTITY is the queue that holds them itself.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many are re-sent at most.")] = 100,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Re-send dead letters. Shows first what it would do; does it with --yes, or when you agree."""
    choice = Choice(reasons=frozenset(reason or ()), key=key)

    async def resent(place: Where) -> None:
        if quarantine_queue and not to:
            raise Ended(Exit.USAGE, "--to: the queue that the messages of a quarantine queue go to")
        of = consumer or _reader_of(place.target, to or entity)
        async with place.target.service_bus_client() as client, place.target.scans() as scans:
            judge = by_record(of, scans) if of and mode is Mode.SKIP else admit
            letters = DeadLetters(client, entity, to=to, quarantine=quarantine_queue)
            verdicts = await letters.look(choice, judge, limit=limit)
            meant = sum(each.resend for each in verdicts)
            if dry_run or not (meant and yes):
                views.show_verdicts(verdicts, done=False, as_json=as_json)
            if dry_run or not meant:
                return
            if not yes and (as_json or not _agreed(place, meant, letters.to)):
                raise Ended(Exit.DECLINED, "nothing was re-sent (--yes re-sends)")
            done = await letters.resend(verdicts, mode.value)
            left = [each for each in verdicts if not each.resend]
            views.show_verdicts(done + left, done=True, as_json=as_json)

    run(resent(context.obj))


async def dead_letters_of(target: Target, entity: str | None, key: str) -> list[Verdict]:
    """The dead letters of one key; none where it is not known which queue its consumer reads."""
    if entity is None or target.service_bus is None:
        return []
    async with target.service_bus_client() as client:
        found = await DeadLetters(client, entity).look(Choice(key=key), limit=_MOST_OF_ONE_KEY)
    return [each for each in found if each.resend]


async def resend_all(target: Target, entity: str | None, letters: list[Verdict]) -> list[Verdict]:
    """Re-send these dead letters, past memories and age limits."""
    async with target.service_bus_client() as client:
        return await DeadLetters(client, entity or "").resend(letters, "force")


def _reader_of(target: Target, entity: str) -> str | None:
    readers = [name for name, source in target.catalogue.sources.items() if source == entity]
    return readers[0] if len(readers) == 1 else None


def _agreed(place: Where, count: int, to: str) -> bool:
    try:
        return typer.confirm(f"re-send {count} message(s) to {to} of {place.target}?", err=True)
    except typer.Abort:
        return False
