"""The command line itself. Every command that changes something asks first, and says where it is."""

import getpass
import time
from typing import Annotated, Any

import msgspec
import typer

from ..descriptions import record_as_json
from ..interventions import Reason, apply, completed, quarantined, released
from ..purging import expired, purge
from ..records import Record, Status
from ..scanning import Found, Placement, Query, RecordScan, find_in, first_of
from ..stores.table_scan import TableScan
from ..surveying import survey
from . import checking, exits, messages, views
from .exits import Ended, Exit, run
from .options import AsJson, Consumer, Key, MostPages, Where, Why, Yes, duration, where

app = typer.Typer(
    name="idempotency",
    help="Look at idempotency records, change one by hand, re-send dead letters, check settings.\n\n"
    "Without options: the app that `make start` runs. Deployed: --account, --namespace or "
    "--cosmos-endpoint, with your own login (`az login`); `azd env get-values` sets them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 `check` found something, 2 usage, 3 not found, 4 refused or changed "
    "meanwhile, 5 a service did not answer, 6 answered with no.",
)
app.callback()(where)
app.command("resend")(messages.resend)
app.command("check")(checking.check)


@app.command("list")
def list_records(
    context: typer.Context,
    consumer: Annotated[str | None, typer.Option(help="Only this consumer's.")] = None,
    status: Annotated[list[Status] | None, typer.Option(help="Only of these; repeatable.")] = None,
    older_than: Annotated[
        str, typer.Option(help="Only those unchanged for so long: 90s, 15m, 12h, 3d.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many are shown.")] = 50,
    most_pages: MostPages = 20,
    as_json: AsJson = False,
) -> None:
    """List records, in the store's own order."""
    query = Query(
        consumer=consumer,
        statuses=frozenset(status or ()),
        older_than=duration(older_than),
        page_size=min(limit + 1, 1000),
    )

    async def listed(place: Where) -> None:
        async with place.target.scans() as scans:
            found, more = await first_of(scans, query, limit=limit, most_pages=most_pages)
        views.show_records(found, more=more, as_json=as_json)

    run(listed(context.obj))


@app.command()
def show(context: typer.Context, consumer: Consumer, key: Key, as_json: AsJson = False) -> None:
    """Show all of one record: its steps, its result, and what was done to it by hand."""

    async def shown(place: Where) -> None:
        async with place.target.scans() as scans:
            _, found = await one(scans, consumer, key)
        views.show_record(found, as_json=as_json)

    run(shown(context.obj))


@app.command()
def stats(
    context: typer.Context,
    consumer: Annotated[str | None, typer.Option(help="Only this consumer's.")] = None,
    most_pages: MostPages = 50,
    as_json: AsJson = False,
) -> None:
    """Count records by consumer and status, and tell the oldest of each."""

    async def counted(place: Where) -> None:
        query = Query(consumer=consumer, page_size=1000)
        async with place.target.scans() as scans:
            views.show_survey(await survey(scans, query, most_pages=most_pages), as_json=as_json)

    run(counted(context.obj))


@app.command()
def release(
    context: typer.Context,
    consumer: Consumer,
    key: Key,
    why: Why = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also work that is completed: it is done a second time.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(help="The queue or topic/subscription, else of tool.idempotency.sources."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let the next delivery of a key continue, and re-send its message from the dead letters.

    Finished steps are kept and not done again; open ones are forgotten: say `complete` instead when
    the provider did them.
    """

    async def freed(place: Where) -> None:
        entity = source or place.target.catalogue.sources.get(consumer)
        async with place.target.scans() as scans:
            hit = await find_in(scans, consumer, key)
            record = released(hit[1], reason(why, yes), again=again) if hit else None
            letters = await messages.dead_letters_of(place.target, entity, key)
            if record is None and not letters:
                raise Ended(Exit.NOT_FOUND, f"there is no record and no dead letter of {key!r}")
            asked = [f"release {consumer} {key!r}"] if record else []
            asked += [f"re-send {len(letters)} dead letter(s) of {entity}"] if letters else []
            confirmed(place, " and ".join(asked), yes)
            if hit and record:
                hit = (hit[0], await apply(hit[0], hit[1], record))
        resent = await messages.resend_all(place.target, entity, letters) if letters else []
        told = None if hit is None else record_as_json(hit[1], whole=True)
        if as_json:
            views.print_json({"record": told, "resent": [msgspec.to_builtins(v) for v in resent]})
            return
        typer.echo(f"released {consumer} {key!r}" if told else "there was no record to release")
        typer.echo(f"re-sent: {sum(each.resend for each in resent)}")

    run(freed(context.obj))


@app.command()
def complete(
    context: typer.Context,
    consumer: Consumer,
    key: Key,
    result: Annotated[
        str | None, typer.Option(help="JSON that duplicates are answered with; none by default.")
    ] = None,
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say that the work of a key is done: duplicates are acknowledged, and get the result."""

    async def done(place: Where) -> None:
        def change(found: Found) -> Record:
            retention = place.policy.retention
            return completed(found, reason(why, yes), result=result, retention=retention)

        await _changed(place, consumer, key, "complete", change, yes=yes, as_json=as_json)

    run(done(context.obj))


@app.command()
def quarantine(
    context: typer.Context,
    consumer: Consumer,
    key: Key,
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let nothing run for a key until a person decides; its messages are dead-lettered."""

    async def stopped(place: Where) -> None:
        def change(found: Found) -> Record:
            return quarantined(found, reason(why, yes))

        await _changed(place, consumer, key, "quarantine", change, yes=yes, as_json=as_json)

    run(stopped(context.obj))


@app.command("purge")
def purge_records(
    context: typer.Context,
    consumer: Annotated[str | None, typer.Option(help="Only this consumer's.")] = None,
    most_pages: MostPages = 100,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete finished records whose retention is over. Table Storage; Cosmos DB does it by itself."""

    async def purged(place: Where) -> None:
        async with place.target.scans() as scans:
            tables = [
                scan
                for scan in scans
                if isinstance(scan, TableScan) and scan.placement is Placement.DEDICATED
            ]
            if not tables:
                raise Ended(Exit.REFUSED, "Cosmos DB deletes expired records by itself (ttl)")
            counts = [await expired(t, consumer=consumer, most_pages=most_pages) for t in tables]
            count, more = sum(n for n, _ in counts), any(more for _, more in counts)
            if count:
                confirmed(place, f"delete {count}{' or more' if more else ''} expired records", yes)
            runs = [
                await purge(table, consumer=consumer, most_pages=most_pages)
                for table in (tables if count else [])
            ]
        deleted, finished = sum(r.deleted for r in runs), all(r.finished for r in runs)
        if as_json:
            views.print_json({"deleted": deleted, "finished": finished})
        else:
            typer.echo(
                f"deleted {deleted}" + ("" if finished else "; there may be more: run it again")
            )

    run(purged(context.obj))


async def one(scans: list[RecordScan], consumer: str, key: str) -> tuple[RecordScan, Found]:
    """The record of a key; raises Ended when there is none."""
    hit = await find_in(scans, consumer, key)
    if hit is None:
        raise Ended(Exit.NOT_FOUND, f"consumer {consumer} has no record of {key!r}")
    return hit


def reason(why: str, yes: bool) -> Reason:
    """Who intervenes and why, asked for where it is not said."""
    if not why:
        if yes:
            raise Ended(Exit.USAGE, "say why: --why TEXT; it is kept in the record")
        why = typer.prompt("why", err=True)
    return Reason(who=getpass.getuser(), at=time.time(), why=why)


def confirmed(place: Where, what: str, yes: bool) -> None:
    """Ask, naming the place; raises Ended when the answer is no, or nobody is there to answer."""
    try:
        agreed = yes or typer.confirm(f"{what} of {place.target}?", err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise Ended(Exit.DECLINED, "nothing was changed")


async def _changed(
    place: Where, consumer: str, key: str, action: str, change: Any, *, yes: bool, as_json: bool
) -> None:
    async with place.target.scans() as scans:
        scan, found = await one(scans, consumer, key)
        record = change(found)
        confirmed(place, f"{action} {consumer} {key!r}, which is {found.record.status},", yes)
        views.show_record(await apply(scan, found, record), as_json=as_json)


__all__ = ["app", "exits"]
