"""The play, act by act: what is sent, what goes wrong, and when everything is settled again.

Each act begins when the one before is settled: the queues are empty and no consumer holds
anything. So a consumer that is killed holds exactly the messages whose acknowledgement is held up.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from local.demo.consumers import Consumer
from local.demo.events import FULFILMENT, TOPIC, WITNESS, Events
from local.demo.narration import Detail, Narration
from local.demo.payments import SUBSCRIPTION, beset
from local.demo.producer import Producer
from local.demo.stage import DETECTION_WINDOW, QUEUE, Stage
from local.demo.traffic import Origin, PlannedOrder, Traffic, batches
from local.servicebus import HeldSettlement

CONSUMERS = 2
PAIRS_AT_ONCE = 8
LOOK_SECONDS = 0.05
ARRIVAL_SECONDS = 30.0
SETTLED_SECONDS = 60.0
SETTLED_SECONDS_PER_ORDER = 0.2


class NotSettled(RuntimeError):
    """Messages are still there after all the time they were given."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What only the play itself can tell.

    sent: messages that the producers and the app itself put into the Service Bus queue.
    sent_through_storage_queue: messages put there.
    http_repeats, replayed: repeated HTTP requests, and those answered from the record.
    steady_messages, steady_seconds: of the part without trouble, from the first send to the
        last acknowledgement.
    killed: consumers that were killed. held_by_killed: unacknowledged messages they held.
    """

    sent: int
    sent_through_storage_queue: int
    http_repeats: int
    replayed: int
    steady_messages: int
    steady_seconds: float
    killed: int
    held_by_killed: int


class Scenario:
    """One play on one stage. `run` it once."""

    def __init__(
        self, stage: Stage, traffic: Traffic, producer: Producer, narration: Narration
    ) -> None:
        self._stage = stage
        self._broker = stage.broker
        self._traffic = traffic
        self._producer = producer
        self._act = narration.act
        self._patience = SETTLED_SECONDS + SETTLED_SECONDS_PER_ORDER * len(traffic.orders)
        self._window_closed = 0.0

    def run(self) -> Outcome:
        """Play all acts.

        Raises NotSettled when messages remain, ServiceError when a consumer does not start.
        """
        beset(self._stage.provider.faults, self._traffic.orders)
        self._start_consumers()
        replayed = self._http_requests()
        steady_messages, steady_seconds = self._steady()
        through_storage_queue = self._sent_again_otherwise()
        self._two_at_once()
        self._acknowledgements_go_astray()
        killed = self._consumers_killed()
        self._after_the_window()
        self._no_one_can_use()
        self._payments()
        if self._stage.protected:
            self._fulfilments()
        http_repeats = len(self._traffic.of(Origin.HTTP_REPEATED))
        return Outcome(
            sent=self._producer.sent + http_repeats,
            sent_through_storage_queue=through_storage_queue,
            http_repeats=http_repeats,
            replayed=replayed,
            steady_messages=steady_messages,
            steady_seconds=steady_seconds,
            killed=killed,
            held_by_killed=len(self._traffic.of(Origin.CONSUMER_KILLED)),
        )

    # ---------------------------------------------------------------- acts

    def _start_consumers(self) -> None:
        with self._act(f"{CONSUMERS} consumers start") as detail:
            self._stage.consumers.start(CONSUMERS)
            detail(f"orders are kept in {self._stage.store}")

    def _http_requests(self) -> int:
        """Each request goes to one consumer and, repeated, to another."""
        first, other, *_ = self._stage.consumers.running
        replayed = 0
        with self._act("Orders over HTTP, each request repeated") as detail:
            for planned in self._traffic.of(Origin.HTTP_REPEATED):
                message, key = planned.message(), f"key-of-{planned.id}"
                self._producer.submit(message, first.host.base_url, key)
                replayed += self._producer.submit(message, other.host.base_url, key)
            self._settled(detail)
            detail(f"{replayed} repeats answered from the record")
        return replayed

    def _steady(self) -> tuple[int, float]:
        """Most orders, with no trouble but repeats within the broker's detection window."""
        orders = self._traffic.of(
            Origin.ONCE,
            Origin.RESENT_IN_WINDOW,
            Origin.RESENT_LATER,
            Origin.RESENT_NEW_ID,
            Origin.OTHER_TRANSPORT,
            Origin.ID_REUSED,
        )
        again = self._traffic.of(Origin.RESENT_IN_WINDOW)
        with self._act(f"{len(orders)} orders over Service Bus") as detail:
            began = time.monotonic()
            self._producer.send([planned.message() for planned in orders])
            window = DETECTION_WINDOW.total_seconds()
            self._window_closed = self._broker.clock.now() + window
            self._producer.send([planned.message() for planned in again])
            self._settled(detail)
            seconds = time.monotonic() - began
            detail(f"{len(orders) / seconds:.0f} messages per second")
        return len(orders), seconds

    def _sent_again_otherwise(self) -> int:
        """In ways that the broker's detection cannot see: another id, another transport."""
        new_id = self._traffic.of(Origin.RESENT_NEW_ID)
        other = self._traffic.of(Origin.OTHER_TRANSPORT)
        title = f"{len(new_id)} sent again under new ids, {len(other)} through the Storage queue"
        with self._act(title) as detail:
            self._producer.send([planned.under_new_id("again") for planned in new_id])
            for planned in other:
                self._producer.send_through_storage_queue(planned.message())
            self._settled(detail)
        return len(other)

    def _two_at_once(self) -> None:
        """Both messages of an order in one batch, few enough to be handed out at one moment."""
        pairs = self._traffic.of(Origin.TWO_AT_ONCE)
        with self._act(f"{len(pairs)} orders in two messages each, at the same moment") as detail:
            for group in batches(pairs, PAIRS_AT_ONCE):
                # Mirrored: whether the broker deals to the consumers in turn or in runs, the
                # two messages of most orders go to different ones.
                first = [planned.under_new_id("a") for planned in group]
                second = [planned.under_new_id("b") for planned in reversed(group)]
                self._producer.send([*first, *second])
                self._settled(detail)

    def _acknowledgements_go_astray(self) -> None:
        """The consumer has done its work, and the broker does not learn of it."""
        lost = self._traffic.of(Origin.ACKNOWLEDGEMENT_LOST)
        late = self._traffic.of(Origin.LOCK_EXPIRED)
        title = f"{len(lost)} acknowledgements get lost, {len(late)} come after the lock's end"
        with self._act(title) as detail:
            for planned in lost:
                self._broker.faults.lose_settlement(QUEUE, planned.id)
            for planned in late:
                self._broker.faults.expire_lock(QUEUE, planned.id)
            self._producer.send([planned.message() for planned in (*lost, *late)])
            self._settled(detail)

    def _consumers_killed(self) -> int:
        """Kill consumers between effect and acknowledgement; others take their place."""
        orders = self._traffic.of(Origin.CONSUMER_KILLED)
        with self._act("Consumers are killed between effect and acknowledgement") as detail:
            holds = [self._broker.faults.hold_settlement(QUEUE, each.id) for each in orders]
            self._producer.send([planned.message() for planned in orders])
            _all_arrived(holds)
            victims = self._holders_of(orders)
            for victim in victims:
                self._stage.consumers.kill(victim)
            detail(f"{len(victims)} others start")
            self._stage.consumers.start(len(victims))
            self._settled(detail)
            detail(f"{len(victims)} killed that held {len(orders)} orders")
        return len(victims)

    def _after_the_window(self) -> None:
        """Now the broker has forgotten the message ids; only the consumer knows them."""
        again = self._traffic.of(Origin.RESENT_LATER)
        reused = self._traffic.of(Origin.ID_REUSED)
        title = (
            f"The broker's window is over: {len(again)} sent again, {len(reused)} ids reused for"
            " other content"
        )
        with self._act(title) as detail:
            while (left := self._window_closed - self._broker.clock.now()) > 0:
                detail(f"{left:.0f} s to wait for that")
                time.sleep(min(left, 1.0))
            self._producer.send([planned.message() for planned in again])
            self._producer.send([planned.altered() for planned in reused])
            self._settled(detail)
            detail("")

    def _no_one_can_use(self) -> None:
        malformed = self._traffic.malformed
        with self._act(f"{len(malformed)} messages that nobody can use") as detail:
            self._producer.send([each.message for each in malformed])
            self._settled(detail)
            detail(f"{self._broker.counts(QUEUE).dead} dead letters in all")

    def _payments(self) -> None:
        """They have gone on beside all this: each order that is placed is charged for."""
        provider, orders = self._stage.provider, self._traffic.orders
        expected = {planned.id for planned in orders}
        deadline = time.monotonic() + self._patience
        with self._act("Every order is paid for, at a provider that fails") as detail:
            while True:
                counts = self._broker.counts(SUBSCRIPTION)
                unpaid = len(expected - {charge.reference for charge in provider.ledger})
                if not (unpaid or counts.active or counts.locked or counts.scheduled):
                    break
                if time.monotonic() > deadline:
                    raise NotSettled(f"{unpaid} orders are not paid for: {counts}")
                detail(f"{unpaid} not paid for")
                time.sleep(LOOK_SECONDS)
            struck = provider.faults.struck.total()
            detail(f"{len(provider.ledger)} charges, {struck} calls went wrong")

    def _fulfilments(self) -> None:
        """Each in two messages; and every event of it all has to be out by the end."""
        orders = self._traffic.orders
        deadline = time.monotonic() + self._patience
        with self._act("Every order is fulfilled, asked for in two messages") as detail:
            for group in batches(orders, PAIRS_AT_ONCE):
                first = [planned.fulfilment() for planned in group]
                self._producer.ask_for_fulfilment([*first, *(p.fulfilment("2") for p in group)])
            while True:
                counts = self._broker.counts(FULFILMENT)
                events = self._events()
                untold = 2 * len(orders) - len(events.placed) - len(events.fulfilled)
                if not (untold or counts.active or counts.locked or counts.scheduled):
                    break
                if time.monotonic() > deadline:
                    raise NotSettled(f"{untold} order events are missing: {counts}")
                detail(f"{untold} events to come")
                time.sleep(LOOK_SECONDS)
            detail(f"{events.placed.total() + events.fulfilled.total()} order events in all")

    def _events(self) -> Events:
        return Events.of(self._broker.messages(WITNESS), self._broker.counts(TOPIC), Counter())

    # ---------------------------------------------------------------- waiting

    def _settled(self, detail: Detail) -> None:
        """Wait until nothing waits and nothing is held, in either queue."""
        deadline = time.monotonic() + self._patience
        while True:
            counts = self._broker.counts(QUEUE)
            left = counts.active + counts.locked + counts.scheduled
            if left == 0:
                left = self._producer.left_in_storage_queue()
            if left == 0:
                detail("")
                return
            if time.monotonic() > deadline:
                raise NotSettled(
                    f"{left} messages are not settled after {self._patience:.0f} s: {counts}"
                )
            detail(f"{left} messages left")
            time.sleep(LOOK_SECONDS)

    def _holders_of(self, orders: tuple[PlannedOrder, ...]) -> list[Consumer]:
        """The consumers that have processed any of these orders."""
        return [
            consumer
            for consumer in self._stage.consumers.running
            if any(consumer.has_processed(planned.id) for planned in orders)
        ]


def _all_arrived(holds: Iterable[HeldSettlement]) -> None:
    """Wait until the broker has all these acknowledgements: then their effects are durable."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    for hold in holds:
        if not hold.wait(deadline - time.monotonic()):
            raise NotSettled(f"an order was not acknowledged within {ARRIVAL_SECONDS:.0f} s")
