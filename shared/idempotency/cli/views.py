"""How records and dead letters are shown: a table for a person, JSON for a script."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..dead_letters import DeadLetter, Verdict
from ..descriptions import record_as_json
from ..interventions import audit_of
from ..keys import presentable
from ..scanning import Found
from ..surveying import Survey


def print_json(content: Any) -> None:
    """One JSON document on the standard output, and nothing else."""
    sys.stdout.write(json.dumps(content, indent=2, default=str) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> None:
    """A table on the standard output; what is wider than a terminal is wrapped, never cut."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(shown(cell)) for cell in row))
    console.print(table)
    if note:
        console.print(escape(note))


def shown(text: str) -> str:
    """Text that cannot play with the terminal: what is not printable is written as an escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in presentable(text))


def lasting(seconds: float) -> str:
    """A duration in the largest units that say enough."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if days >= 2:
        return f"{days:.0f} d"
    if hours >= 2:
        return f"{hours:.0f} h"
    return f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"


def moment(epoch: float | None) -> str:
    """An instant, in UTC."""
    if epoch is None:
        return "-"
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def show_records(found: Sequence[Found], *, more: bool, as_json: bool) -> None:
    """A list of records."""
    if as_json:
        records = [record_as_json(each, whole=False) for each in found]
        print_json({"records": records, "more": more})
        return
    rows = [
        [
            each.record.consumer,
            each.record.key,
            str(each.record.status),
            lasting(each.age),
            str(each.record.attempt),
            each.record.failure_reason or "",
            each.source,
        ]
        for each in found
    ]
    note = "there are more, or may be: --limit, or a narrower filter" if more else ""
    columns = ("consumer", "key", "status", "unchanged for", "attempt", "reason", "in")
    print_table(columns, rows, note=note)


def show_record(found: Found, *, as_json: bool) -> None:
    """All of one record."""
    told = record_as_json(found, whole=True)
    if as_json:
        print_json(told)
        return
    for name in ("started_at", "finished_at", "expires_at"):
        told[name] = moment(told[name])
    told["age"] = lasting(found.age)
    told["steps"] = ", ".join(
        f"{s.name} ({'done' if s.done else 'open'})" for s in found.record.steps
    )
    told["audit"] = "\n".join(
        f"{moment(entry.at)} {entry.who}: {entry.action} (was {entry.was}): {entry.why}"
        for entry in audit_of(found)
    )
    rows = [[name, _text(value)] for name, value in told.items()]
    print_table(("property", "value"), rows)


def show_survey(told: Survey, *, as_json: bool) -> None:
    """Counts by consumer and status."""
    if as_json:
        tallies = [msgspec.to_builtins(tally) for tally in told.tallies]
        print_json({"tallies": tallies, "complete": told.complete})
        return
    rows = [
        [each.consumer, str(each.status), str(each.records), lasting(each.oldest)]
        for each in told.tallies
    ]
    note = "" if told.complete else "counted in part: --most-pages"
    print_table(("consumer", "status", "records", "oldest unchanged for"), rows, note=note)


def show_verdicts(verdicts: Sequence[Verdict], *, done: bool, as_json: bool) -> None:
    """Dead letters and what becomes of each; ``done``: what became of it."""
    if as_json:
        letters = [
            {**letter_as_json(each.letter), "resend": each.resend, "why_not": each.why or None}
            for each in verdicts
        ]
        print_json({"dead_letters": letters, "dry_run": not done})
        return
    resent = "re-sent" if done else "would be re-sent"
    rows = [
        [
            each.letter.key or "-",
            each.letter.reason,
            each.letter.description,
            str(each.letter.resend_count),
            resent if each.resend else f"left: {each.why}",
        ]
        for each in verdicts
    ]
    print_table(("key", "reason", "description", "re-sent before", "now"), rows)


def letter_as_json(letter: DeadLetter) -> Mapping[str, Any]:
    """A dead letter for a script."""
    told: Mapping[str, Any] = msgspec.to_builtins(letter)
    return told


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
