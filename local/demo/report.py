"""The account as tables for a person, or as one JSON object for a program."""

import json
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table

from local.demo.accounts import Accounts


def as_json(accounts: Accounts) -> str:
    """Everything, in one object."""
    return json.dumps(asdict(accounts), indent=2)


def show(accounts: Accounts, console: Console) -> None:
    """Tables, what is wrong, and the line for machines last."""
    console.print()
    console.print(_origins(accounts))
    console.print(_deliveries(accounts))
    console.print(_dead_letters(accounts))
    console.print(_payments(accounts))
    console.print(_events(accounts))
    for line in _remarks(accounts):
        console.print(f"- {line}", soft_wrap=True)
    for problem in accounts.problems:
        console.print(f"[bold red]PROBLEM[/]: {problem}", soft_wrap=True)
    console.print()
    console.print(accounts.machine_line, soft_wrap=True)


def _origins(accounts: Accounts) -> Table:
    table = _table("How orders came again, and what came of it")
    table.add_column("origin", no_wrap=True)
    for name in ("orders", "re-sent", "again", "effects", "doubled"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in accounts.origins:
        table.add_row(
            row.origin,
            *(_number(n) for n in (row.orders, row.resent, row.came_again, row.effects)),
            _bad(row.doubled),
        )
    rows = accounts.origins
    table.add_section()
    table.add_row(
        "all",
        *(
            str(sum(column))
            for column in zip(
                *((r.orders, r.resent, r.came_again, r.effects) for r in rows), strict=True
            )
        ),
        _bad(sum(row.doubled for row in rows)),
    )
    return table


def _deliveries(accounts: Accounts) -> Table:
    table = _table("What became of every message")
    table.add_column("")
    table.add_column("messages", justify="right")
    table.add_column("counted by")
    through_storage = accounts.sent_through_storage_queue
    table.add_row("sent to Service Bus", str(accounts.sent), "broker")
    table.add_row("  dropped by its own detection", str(accounts.dropped), "broker")
    table.add_row("sent to the Storage queue", str(through_storage), "producer")
    table.add_row("delivered, redeliveries included", str(accounts.delivered), "broker, hosts")
    table.add_section()
    table.add_row("= effects", str(accounts.effects), "journal in the store")
    table.add_row("+ duplicates absorbed", str(accounts.duplicates), "delivered - the others")
    if accounts.protected:
        by_broker = f"logs; the broker counts {accounts.broker_redeliveries}"
        table.add_row("    the broker's redelivery", str(accounts.redelivered), by_broker)
        table.add_row("    a producer's re-send", str(accounts.resent), "logs")
    table.add_row("+ mismatches", str(accounts.mismatches), "dead-letter queue")
    table.add_row("+ rejected", str(accounts.rejected), "dead-letter queue")
    table.add_row("+ failed and came back", str(accounts.given_back), "logs")
    return table


def _dead_letters(accounts: Accounts) -> Table:
    table = _table("Dead letters")
    table.add_column("reason")
    table.add_column("messages", justify="right")
    for reason, count in accounts.dead_letters.items():
        table.add_row(reason, str(count))
    return table


def _payments(accounts: Accounts) -> Table:
    table = _table("What the payment provider's ledger says")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("orders placed", str(accounts.processed))
    table.add_row("orders charged", str(accounts.charged))
    table.add_row("charges", str(accounts.charges))
    table.add_row("orders charged twice", _bad(accounts.charged_twice))
    table.add_section()
    for fault, count in accounts.provider_faults.items():
        table.add_row(f"calls that met: {fault.replace('_', ' ')}", str(count))
    return table


def _events(accounts: Accounts) -> Table:
    table = _table("What subscribers of the order events were told")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("counted by")
    table.add_row("orders placed", str(accounts.processed), "journal in the store")
    table.add_row("  told by OrderPlaced", str(accounts.told_placed), "a subscription")
    if accounts.protected:
        table.add_row("orders fulfilled", str(accounts.fulfilled), "journal in the store")
        table.add_row("  told by OrderFulfilled", str(accounts.told_fulfilled), "a subscription")
        repeats = "the topic, by MessageId"
        table.add_row("sent again, and recognised", str(accounts.events_repeated), repeats)
    return table


def _remarks(accounts: Accounts) -> list[str]:
    remarks = [f"{accounts.messages_per_second:.0f} messages per second while nothing went wrong"]
    telemetry = accounts.telemetry
    if telemetry.store_share is not None:
        remarks[0] += f"; {telemetry.store_share:.0%} of the handling time was spent in the store"
    if accounts.mismatch_example:
        remarks.append(f"a mismatch: {accounts.mismatch_example}")
    if accounts.protected:
        remarks += [
            f"{accounts.replayed} of {accounts.http_repeats} repeated HTTP requests got the"
            " recorded answer, and sent nothing",
            f"{accounts.pairs_in_two_processes} pairs met in two processes; the store refused"
            f" {telemetry.refused_commits} second transactions, those of fulfilment included",
            f"telemetry has {telemetry.redelivered} redeliveries and {telemetry.resent} re-sends"
            + _never_exported(accounts),
        ]
    else:
        remarks.append(
            f"{accounts.doubled} effects too many; {accounts.overwritten} orders overwritten by"
            " other content under the same id"
        )
        if unknown := accounts.processed + accounts.lost - accounts.orders:
            remarks.append(f"{unknown} order handled whose message had no MessageId")
    return remarks


def _never_exported(accounts: Accounts) -> str:
    """A hard exit loses what was not flushed: that is said, not hidden."""
    missing = accounts.telemetry_missing
    if not missing:
        return ""
    return f"; {missing} deliveries are missing there: killed consumers had not exported them yet"


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _number(count: int) -> str:
    return str(count) if count else "-"


def _bad(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "0"
