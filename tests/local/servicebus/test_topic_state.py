"""Topics, and how entities are found, moved by the clock alone."""

from datetime import timedelta

import pytest

from local.servicebus.clock import Clock
from local.servicebus.counts import Counts
from local.servicebus.entities import Entities, QueueSettings, TopicSettings
from local.servicebus.errors import EntityNotFound, MessageNotFound
from local.servicebus.message import Content, Disposition, Outcome
from local.servicebus.namespace import Namespace
from local.servicebus.topic import Topic

EVENTS = TopicSettings(
    "order-events",
    time_to_live=timedelta(seconds=100),
    detection_window=timedelta(seconds=15),
    subscriptions=(QueueSettings("email"), QueueSettings("loyalty")),
)


@pytest.fixture
def clock() -> Clock:
    return Clock(source=lambda: 1_700_000_000.0)


@pytest.fixture
def namespace(clock: Clock) -> Namespace:
    return Namespace(Entities(topics=(EVENTS,)), clock)


@pytest.fixture
def topic(namespace: Namespace) -> Topic:
    found = namespace.find("order-events")
    assert isinstance(found, Topic)
    return found


def test_every_subscription_gets_its_own_copy(namespace: Namespace, topic: Topic) -> None:
    topic.send(Content("e1"))
    email = namespace.queue("order-events/subscriptions/email")
    lock = email.receive()
    assert lock is not None
    email.settle(lock.token, Disposition(Outcome.DEAD_LETTERED, "Unreadable"))
    [letter] = namespace.queue("order-events/subscriptions/email/$deadletterqueue").messages()
    [copy] = namespace.queue("order-events/subscriptions/loyalty").messages()
    assert (letter.reason, copy.message_id, copy.reason) == ("Unreadable", "e1", None)


def test_detection_happens_at_the_topic(namespace: Namespace, topic: Topic, clock: Clock) -> None:
    topic.send(Content("e1"))
    topic.send(Content("e1"))
    assert topic.counts() == Counts(sent=2, dropped_by_detection=1)
    assert namespace.queue("order-events/subscriptions/email").counts().sent == 1
    clock.advance(15)
    topic.send(Content("e1"))
    assert namespace.queue("order-events/subscriptions/email").counts().sent == 2


def test_a_scheduled_message_is_copied_at_its_time(
    namespace: Namespace, topic: Topic, clock: Clock
) -> None:
    topic.send(Content("later", scheduled_for=clock.now() + 30))
    cancelled = topic.send(Content("never", scheduled_for=clock.now() + 30))
    assert cancelled is not None
    topic.cancel(cancelled)
    with pytest.raises(MessageNotFound):
        topic.cancel(cancelled)
    email = namespace.queue("order-events/subscriptions/email")
    assert email.messages() == ()
    clock.advance(30)
    namespace.sweep()
    assert [each.message_id for each in email.messages()] == ["later"]


def test_the_topics_time_to_live_holds_for_the_copies(
    namespace: Namespace, topic: Topic, clock: Clock
) -> None:
    topic.send(Content("e1", time_to_live=1000))
    clock.advance(100)
    assert namespace.queue("order-events/subscriptions/email").messages() == ()


def test_names_ignore_case_and_unknown_ones_are_refused(namespace: Namespace) -> None:
    email = namespace.queue("order-events/subscriptions/email")
    assert namespace.queue("Order-Events/Subscriptions/EMAIL") is email
    for unknown in ("nope", "order-events/subscriptions/nope", ""):
        with pytest.raises(EntityNotFound):
            namespace.find(unknown)
    with pytest.raises(EntityNotFound):
        namespace.queue("order-events")
