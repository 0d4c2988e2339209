"""The linter of retention and settings at the command line."""

from pathlib import Path
from typing import Annotated

import typer

from ..broker_windows import complaints, windows_in_file, windows_of_namespace
from ..resending import BrokerUnavailable
from ..retention import Window
from . import views
from .exits import Ended, Exit, run
from .options import AsJson, Where
from .places import Target


def check(
    context: typer.Context,
    entity_file: Annotated[
        Path | None,
        typer.Option(help="The broker's entities in a file; else the namespace is asked."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that records outlive every message that can still come back, and the other numbers.

    A namespace tells its numbers only to who may manage it (Azure Service Bus Data Owner).
    """

    async def checked(place: Where) -> None:
        target = place.target
        file = entity_file
        if file is None and target.local and target.catalogue.entity_file:
            file = Path(target.catalogue.entity_file)
        if file is not None:
            windows = windows_in_file(file, dead_letters=place.dead_letters)
        else:
            windows = await _asked(target, place.dead_letters)
        read = set(target.catalogue.sources.values()) or None
        told = complaints(windows, place.policy, entities=read)
        if as_json:
            views.print_json(
                {
                    "complaints": told,
                    "retention_hours": place.policy.retention / 3600,
                    "windows": {w.entity: w.seconds / 3600 for w in windows},
                }
            )
        else:
            _show(windows, told, place.policy.retention)
        if told:
            raise Ended(Exit.WRONG, f"{len(told)} complaint(s)")

    run(checked(context.obj))


async def _asked(target: Target, dead_letters: float) -> list[Window]:
    """What the namespace says of itself."""
    from azure.core.exceptions import AzureError
    from azure.identity.aio import DefaultAzureCredential
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    if target.local or not target.service_bus:
        raise Ended(Exit.USAGE, "where are the broker's numbers? --entity-file, or --namespace")
    try:
        async with (
            DefaultAzureCredential() as credential,
            ServiceBusAdministrationClient(target.service_bus, credential) as client,
        ):
            return await windows_of_namespace(client, dead_letters=dead_letters)
    except (AzureError, OSError) as error:
        raise BrokerUnavailable(
            f"the namespace does not tell its numbers ({type(error).__name__}): it takes the right to "
            "manage it, Azure Service Bus Data Owner; or give them with --entity-file"
        ) from error


def _show(windows: list[Window], told: list[str], retention: float) -> None:
    rows = [
        [
            each.entity,
            str(each.max_delivery_count),
            views.lasting(each.lock),
            "for ever" if each.time_to_live is None else views.lasting(each.time_to_live),
            views.lasting(each.dead_letters),
            "for ever" if each.time_to_live is None else views.lasting(each.seconds),
        ]
        for each in windows
    ]
    columns = (
        "entity",
        "deliveries",
        "lock",
        "time to live",
        "as a dead letter",
        "can come back for",
    )
    views.print_table(columns, rows, note=f"records are kept for {views.lasting(retention)}")
    for each in told:
        typer.echo(f"! {each}")
