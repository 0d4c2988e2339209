"""Real orders with every kind of duplicate, and what became of them: ``python -m local.demo``.

    --orders 120         how many
    --store table        or `cosmos`: where orders are kept
    --unprotected        the same traffic against an app without the module
    --json               one JSON object instead of tables
    --seed 1             which orders come twice, and how

Exit code 1 when an order is lost or doubled, or a message is unaccounted for. Unprotected: when
nothing was doubled, which is what it is to show.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from azure.storage.queue import QueueServiceClient
from rich.console import Console

from local.demo import report, stage
from local.demo.accounts import Accounts, drawn_up
from local.demo.consumers import Logs
from local.demo.events import TOPIC, WITNESS, Events
from local.demo.evidence import Evidence
from local.demo.ledger import Ledger
from local.demo.narration import Narration
from local.demo.payments import SUBSCRIPTION, Payments
from local.demo.producer import NotAccepted, Producer
from local.demo.scenario import NotSettled, Scenario
from local.demo.telemetry import Telemetry
from local.demo.traffic import Traffic
from local.services.processes import ServiceError

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """What the person asked for."""

    traffic: Traffic
    store: str
    protected: bool
    json: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code."""
    options = parse(arguments)
    _end_on_signals()
    output = Console(highlight=False)
    try:
        accounts = played(options, Narration(_narrator(options)))
    except KeyboardInterrupt:
        print("\nStopped everything.", file=sys.stderr)
        return INTERRUPTED
    except (ServiceError, NotSettled, NotAccepted) as error:
        print("\n".join(["", str(error), *getattr(error, "__notes__", [])]), file=sys.stderr)
        return 1
    if options.json:
        print(report.as_json(accounts))
    else:
        report.show(accounts, output)
    if accounts.problems:
        return 1
    return 0 if accounts.protected or accounts.doubled else 1


def parse(arguments: Sequence[str] | None) -> Options:
    """The command line, with the traffic planned."""
    parser = argparse.ArgumentParser(prog="python -m local.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--orders", type=int, default=120)
    parser.add_argument("--store", choices=["table", "cosmos"], default="table")
    parser.add_argument("--unprotected", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    try:
        traffic = Traffic.planned(given.orders, given.seed)
    except ValueError as error:
        parser.error(f"--orders: {error}")
    return Options(traffic, given.store, not given.unprotected, given.json)


def played(options: Options, narration: Narration) -> Accounts:
    """Play the scenario on a stage of its own, and draw up the account when all has ended."""
    with stage.opened(options.store, protected=options.protected) as opened:
        with Producer(opened) as producer:
            outcome = Scenario(opened, options.traffic, producer, narration).run()
        with narration.act("Everything ends, and is counted"):
            opened.consumers.stop()
            ledger = Ledger.read(opened)
            return drawn_up(
                Evidence(
                    protected=options.protected,
                    traffic=options.traffic,
                    outcome=outcome,
                    broker=opened.broker.counts(stage.QUEUE),
                    dead_letters=opened.broker.messages(f"{stage.QUEUE}/$deadletterqueue"),
                    poison_messages=_poison_messages(opened),
                    ledger=ledger,
                    logs=Logs.of(opened.consumers),
                    telemetry=Telemetry.read(opened.sink),
                    payments=Payments.of(
                        opened.provider.ledger,
                        opened.provider.faults.struck,
                        opened.broker.counts(SUBSCRIPTION).dead,
                    ),
                    events=Events.of(
                        opened.broker.messages(WITNESS),
                        opened.broker.counts(TOPIC),
                        ledger.fulfilments,
                    ),
                )
            )


def _poison_messages(opened: stage.Stage) -> int:
    """Messages that the Storage queue trigger gave up."""
    name = f"{stage.QUEUE}-poison"
    with QueueServiceClient.from_connection_string(opened.azurite.connection_string) as service:
        if name not in (queue.name for queue in service.list_queues()):
            return 0
        return service.get_queue_client(name).get_queue_properties().approximate_message_count or 0


def _narrator(options: Options) -> Console:
    """Where the acts are told: not between a program and its JSON."""
    return Console(stderr=options.json, highlight=False)


def _end_on_signals() -> None:
    """A closed terminal and `kill` end the demo as Ctrl-C does: everything it started ends too."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for request in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(request, interrupt)


if __name__ == "__main__":
    sys.exit(main())
