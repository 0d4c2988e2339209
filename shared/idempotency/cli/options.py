"""Options that several commands share, and the one place where the commands read the environment."""

import re
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..errors import ConfigurationError
from ..records import Policy
from .exits import Ended, Exit
from .places import RUN_FILE, Catalogue, Target, deployed_target, local_target

DAY = 86400.0

# plain assignments: typer does not look into aliases made by the statement `type`
Consumer = Annotated[str, typer.Argument(help="The consumer's name.")]
Key = Annotated[str, typer.Argument(help="The deduplication key.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on the standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Why = Annotated[str, typer.Option(help="Kept in the record, with your name and the time.")]
MostPages = Annotated[
    int, typer.Option(min=1, help="Requests that each table or container may cost.")
]


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What the options before the command say: where to look, and by which numbers."""

    target: Target
    policy: Policy
    dead_letters: float
    """Seconds for which a dead letter may lie before it is re-sent."""


def where(
    context: typer.Context,
    account: Annotated[
        str | None,
        typer.Option(envvar="AZURE_STORAGE_ACCOUNT", help="Storage account, by name or address."),
    ] = None,
    cosmos_endpoint: Annotated[
        str | None, typer.Option(envvar="COSMOS_ENDPOINT", help="Where the store is Cosmos DB.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(envvar="SERVICEBUS_FQDN", help="Service Bus namespace, by name or address."),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="The app of `make start`, whatever else is set.")
    ] = False,
    run_file: Annotated[Path, typer.Option(help="What `make start` wrote.")] = RUN_FILE,
    catalogue: Annotated[
        Path, typer.Option(help="The file with the section tool.idempotency.")
    ] = Path("pyproject.toml"),
    records: Annotated[
        list[str] | None, typer.Option(help="Tables or containers of records; repeatable.")
    ] = None,
    markers: Annotated[
        list[str] | None,
        typer.Option(
            help="Those with markers beside the data, NAME or NAME:PARTITION; repeatable."
        ),
    ] = None,
    cosmos_database: Annotated[str | None, typer.Option()] = None,
    retention_days: Annotated[float, typer.Option(envvar="IDEMPOTENCY_RETENTION_DAYS")] = 30.0,
    dead_letter_days: Annotated[float, typer.Option(envvar="IDEMPOTENCY_DEAD_LETTER_DAYS")] = 14.0,
    lease: Annotated[float, typer.Option(envvar="IDEMPOTENCY_LEASE_SECONDS")] = 30.0,
    heartbeat: Annotated[float, typer.Option(envvar="IDEMPOTENCY_HEARTBEAT_SECONDS")] = 10.0,
    wait: Annotated[float, typer.Option(envvar="IDEMPOTENCY_WAIT_SECONDS")] = 45.0,
    deadline: Annotated[float, typer.Option(envvar="IDEMPOTENCY_DEADLINE_SECONDS")] = 300.0,
) -> None:
    """Look at idempotency records, change one by hand, re-send dead letters, check settings."""
    if context.resilient_parsing:
        return
    try:
        known = Catalogue.read(catalogue)
        if records:
            known = msgspec.structs.replace(known, records=tuple(records))
        if markers:
            pairs = (each.partition(":") for each in markers)
            known = msgspec.structs.replace(
                known, markers={name: partition or "id" for name, _, partition in pairs}
            )
        if cosmos_database:
            known = msgspec.structs.replace(known, cosmos_database=cosmos_database)
        policy = Policy(
            lease=lease,
            heartbeat=heartbeat,
            wait=wait,
            deadline=deadline,
            retention=retention_days * DAY,
        )
        if (account or cosmos_endpoint or namespace) and not local:
            target = deployed_target(
                account=account, cosmos=cosmos_endpoint, namespace=namespace, catalogue=known
            )
        else:
            target = local_target(run_file, known)
    except (ConfigurationError, Ended) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None
    context.obj = Where(target=target, policy=policy, dead_letters=dead_letter_days * DAY)


def duration(text: str) -> float | None:
    """Seconds of `90s`, `15m`, `12h` or `3d`; None of nothing."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is none of 90s, 15m, 12h, 3d", param_hint="--older-than"
        )
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
