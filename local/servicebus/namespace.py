"""All entities of one broker, found by the addresses clients use."""

from .clock import Clock
from .entities import Entities, QueueSettings
from .errors import EntityNotFound
from .queue import Queue
from .topic import Topic

DEAD_LETTER_SUFFIX = "/$deadletterqueue"


class Namespace:
    """Queues, topics, subscriptions and their dead-letter queues. Names ignore case."""

    def __init__(self, entities: Entities, clock: Clock) -> None:
        self._clock = clock
        self._entities: dict[str, Queue | Topic] = {}
        for queue in entities.queues:
            self._add_queue(queue.name, queue)
        for topic in entities.topics:
            subscriptions = tuple(
                self._add_queue(f"{topic.name}/subscriptions/{settings.name}", settings)
                for settings in topic.subscriptions
            )
            self._entities[topic.name.lower()] = Topic(topic, clock, subscriptions)

    def find(self, name: str) -> Queue | Topic:
        """The queue, topic, subscription or dead-letter queue of that name; EntityNotFound."""
        found = self._entities.get(name.strip("/").lower())
        if found is None:
            raise EntityNotFound(f"The messaging entity '{name}' could not be found.")
        return found

    def queue(self, name: str) -> Queue:
        """As `find`, for what can be received from."""
        found = self.find(name)
        if isinstance(found, Topic):
            raise EntityNotFound(f"'{name}' is a topic; name one of its subscriptions.")
        return found

    def sweep(self) -> None:
        """Let everything happen that fell due anywhere."""
        for entity in self._entities.values():
            entity.sweep()

    def next_moment(self) -> float | None:
        """When something falls due next; None if nothing waits for time."""
        moments = (entity.next_moment() for entity in self._entities.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def _add_queue(self, name: str, settings: QueueSettings) -> Queue:
        dead_name = name + DEAD_LETTER_SUFFIX
        dead_settings = QueueSettings(dead_name, lock=settings.lock)
        dead_letters = Queue(dead_name, dead_settings, self._clock)
        queue = Queue(name, settings, self._clock, dead_letters)
        self._entities[dead_name.lower()] = dead_letters
        self._entities[name.lower()] = queue
        return queue
