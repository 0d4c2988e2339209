"""What the account is drawn up from.

Effects come from the store, charges from the provider's ledger, deliveries from the broker and the
consumers' logs, refusals from the dead-letter queue. Telemetry is compared with these and never
counted on: a process that is killed takes with it what it has not exported.
"""

from dataclasses import dataclass

from local.demo.consumers import Logs
from local.demo.events import Events
from local.demo.ledger import Ledger
from local.demo.payments import Payments
from local.demo.scenario import Outcome
from local.demo.telemetry import Telemetry
from local.demo.traffic import Traffic
from local.servicebus import Counts, Snapshot

MISMATCH = "PayloadMismatch"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything there is to judge by, gathered after the consumers have ended."""

    protected: bool
    traffic: Traffic
    outcome: Outcome
    broker: Counts
    dead_letters: tuple[Snapshot, ...]
    poison_messages: int
    ledger: Ledger
    logs: Logs
    telemetry: Telemetry
    payments: Payments
    events: Events

    @property
    def delivered_by_broker(self) -> int:
        """Hand-overs to consumers, redeliveries included; not those given back unread."""
        return self.broker.delivered - self.broker.released

    @property
    def delivered(self) -> int:
        """Hand-overs from both queues."""
        return self.delivered_by_broker + self.logs.from_storage_queue

    @property
    def handled(self) -> int:
        """Deliveries that the module counts: all but faults."""
        return sum(1 for each in self.logs.handlings if each.outcome != "fault")

    @property
    def given_back(self) -> int:
        """Deliveries that ended without any result, so that the message came again.

        The module logs them as faults. A refusal of the handler's own is logged as one too, but
        ends as a dead letter: the messages that nobody can use are not counted here.
        """
        if not self.protected:
            return self.logs.failed
        unusable = {each.message.message_id for each in self.traffic.malformed}
        return sum(
            1
            for each in self.logs.handlings
            if each.outcome == "fault" and each.key not in unusable
        )
