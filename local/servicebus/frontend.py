"""The AMQP side of the broker: who attaches to what, who gets the next message."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from proton import Described, Endpoint, Terminus, symbol

from .clock import Clock
from .errors import EntityNotFound, NotAllowed, NothingToReceive, Refusal
from .faults import Faults
from .links import Consumer, Producer, Replies, Requests, close
from .locks import SessionLock
from .management import Management, Reply, Request
from .namespace import Namespace
from .queue import Queue
from .topic import Topic

_CONTAINER = "local-servicebus"
_MANAGEMENT = "/$management"
_CBS = "$cbs"
_SESSION_FILTER = symbol("com.microsoft:session-filter")
_SESSION_LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")
_SESSION_TIMEOUT = symbol("com.microsoft:timeout")
_EPOCH_TICKS = 621_355_968_000_000_000  # of 100 ns, from year 1 to 1970

Role = Producer | Consumer | Requests | Replies


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A client that waits for any session to become available; `deadline` in monotonic time."""

    link: Any
    queue: Queue
    deadline: float


class FrontEnd:
    """Turns the protocol engine's events into calls on the namespace, and messages into frames."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        faults: Faults,
        drop: Callable[[Any], None],
        max_message_bytes: int,
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._faults = faults
        self._drop = drop
        self._max_message_bytes = max_message_bytes
        self._roles: dict[Any, Role] = {}
        self._consumers: deque[Consumer] = deque()
        self._waiting: list[_Waiting] = []

    # ---------------------------------------------------------------- the server's interface

    def handle(self, event: Any) -> None:
        """React to one event of the protocol engine; most need no reaction."""
        react = self._reactions.get(event.type.name)
        if react is not None:
            react(self, event)

    def work(self) -> float | None:
        """Hand out what waits; seconds until time makes more of it available."""
        self._namespace.sweep()
        self._grant_sessions()
        self._deliver()
        moments = [waiting.deadline - time.monotonic() for waiting in self._waiting]
        upcoming = self._namespace.next_moment()
        if upcoming is not None:
            moments.append(upcoming - self._clock.now())
        return min(moments, default=None)

    def connection_lost(self, connection: Any) -> None:
        """Forget a connection; its locks stay until they expire."""
        for link in [link for link in self._roles if link.connection == connection]:
            self._forget(link, in_good_order=False)
        self._waiting = [each for each in self._waiting if each.link.connection != connection]

    # ---------------------------------------------------------------- handing out

    def _deliver(self) -> None:
        """One message to each consumer in turn, as long as anyone takes one."""
        idle = 0
        while idle < len(self._consumers):
            consumer = self._consumers[0]
            self._consumers.rotate(-1)
            try:
                idle = 0 if consumer.deliver_one() else idle + 1
            except Refusal as refusal:  # its session's lock ended
                close(consumer.link, refusal)
                self._forget(consumer.link, in_good_order=False)

    def _grant_sessions(self) -> None:
        for waiting in list(self._waiting):
            session = waiting.queue.accept_session(None)
            if session is not None:
                self._waiting.remove(waiting)
                self._consume(waiting.link, waiting.queue, session)
            elif waiting.deadline <= time.monotonic():
                self._waiting.remove(waiting)
                _refuse(waiting.link, NothingToReceive("No session became available in time."))

    # ---------------------------------------------------------------- attaching

    def _attach(self, event: Any) -> None:
        link = event.link
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        terminus = link.remote_source if link.is_sender else link.remote_target
        try:
            self._attach_to(link, _path(terminus.address))
        except Refusal as refusal:
            _refuse(link, refusal)

    def _attach_to(self, link: Any, path: str) -> None:
        if path == _CBS:
            self._converse(link, path, _authorize, ("status-code", "status-description"))
        elif path.lower().endswith(_MANAGEMENT):
            entity = self._namespace.find(path[: -len(_MANAGEMENT)])
            management = Management(
                entity,
                self._clock,
                self._faults,
                disconnect=lambda: self._drop(link.connection),
                is_connected=lambda: link in self._roles,
            )
            self._converse(link, path, management.answer, ("statusCode", "statusDescription"))
        elif link.is_receiver:
            entity = self._namespace.find(path)
            _open(link, self._max_message_bytes)
            self._roles[link] = Producer(link, entity, self._clock)
        else:
            self._attach_consumer(link, path)

    def _converse(
        self,
        link: Any,
        path: str,
        answer: Callable[[Request, Callable[[Reply], None]], None],
        keys: tuple[str, str],
    ) -> None:
        _open(link, self._max_message_bytes)
        if link.is_sender:
            self._roles[link] = Replies(link, path)
        else:
            self._roles[link] = Requests(link, answer, lambda: self._replies(link, path), keys)

    def _replies(self, requests: Any, path: str) -> Replies | None:
        for link, role in self._roles.items():
            if isinstance(role, Replies) and role.node == path and link.session == requests.session:
                return role
        return None

    def _attach_consumer(self, link: Any, path: str) -> None:
        queue = self._namespace.find(path)
        if isinstance(queue, Topic):
            raise NotAllowed(f"'{path}' is a topic; receive from one of its subscriptions.")
        filters = _filters(link)
        if _SESSION_FILTER not in filters:
            if queue.settings.requires_session:
                raise NotAllowed(f"'{path}' requires sessions; name one, or ask for the next.")
            self._consume(link, queue)
            return
        session = queue.accept_session(filters[_SESSION_FILTER])
        if session is not None:
            self._consume(link, queue, session)
        else:
            milliseconds = int((link.remote_properties or {}).get(_SESSION_TIMEOUT, 60_000))
            deadline = time.monotonic() + milliseconds / 1000
            self._waiting.append(_Waiting(link, queue, deadline))

    def _consume(self, link: Any, queue: Queue, session: SessionLock | None = None) -> None:
        if session is not None:
            ticks = _EPOCH_TICKS + int(self._clock.to_wire(session.until) * 10_000_000)
            link.properties = {_SESSION_LOCKED_UNTIL: ticks}
        _open(link, self._max_message_bytes, session)
        consumer = Consumer(
            link, queue, self._clock, self._faults, lambda: self._drop(link.connection), session
        )
        self._roles[link] = consumer
        self._consumers.append(consumer)

    # ---------------------------------------------------------------- events

    def _open_connection(self, event: Any) -> None:
        event.connection.container = _CONTAINER
        event.connection.open()

    def _open_session(self, event: Any) -> None:
        event.session.open()

    def _detach(self, event: Any) -> None:
        self._forget(event.link, in_good_order=True)
        event.link.close()

    def _close_session(self, event: Any) -> None:
        for link in [link for link in self._roles if link.session == event.session]:
            self._forget(link, in_good_order=True)
        event.session.close()

    def _close_connection(self, event: Any) -> None:
        for link in [link for link in self._roles if link.connection == event.connection]:
            self._forget(link, in_good_order=True)
        event.connection.close()

    def _flow(self, event: Any) -> None:
        """New credit is used in `work`; a drain must be answered after that."""
        link = event.link
        if link.is_sender and link.drain_mode:
            self._deliver()
            link.drained()

    def _delivery(self, event: Any) -> None:
        role = self._roles.get(event.link)
        if role is not None:
            role.on_delivery(event.delivery)

    def _forget(self, link: Any, *, in_good_order: bool) -> None:
        role = self._roles.pop(link, None)
        self._waiting = [each for each in self._waiting if each.link != link]
        if isinstance(role, Consumer):
            self._consumers.remove(role)
            if in_good_order:
                role.left()
            else:
                role.lost()

    _reactions: ClassVar[Mapping[str, Callable[["FrontEnd", Any], None]]] = {
        "PN_CONNECTION_REMOTE_OPEN": _open_connection,
        "PN_SESSION_REMOTE_OPEN": _open_session,
        "PN_LINK_REMOTE_OPEN": _attach,
        "PN_LINK_FLOW": _flow,
        "PN_DELIVERY": _delivery,
        "PN_LINK_REMOTE_CLOSE": _detach,
        "PN_LINK_REMOTE_DETACH": _detach,
        "PN_SESSION_REMOTE_CLOSE": _close_session,
        "PN_CONNECTION_REMOTE_CLOSE": _close_connection,
    }


def _authorize(_request: Request, reply: Callable[[Reply], None]) -> None:
    """Every token is good: this broker is open to whoever reaches it."""
    reply(Reply(202, "Accepted"))


def _path(address: str | None) -> str:
    """`amqps://host:port/orders/$management` or a bare path → `orders/$management`."""
    if not address:
        raise EntityNotFound("The link names no entity.")
    return (urlsplit(address).path if "://" in address else address).strip("/")


def _filters(link: Any) -> dict[Any, Any]:
    """The filters of a receiving client's source."""
    data = link.remote_source.filter
    data.rewind()
    filters = (data.get_object() if data.next() else None) or {}
    return {
        key: value.value if isinstance(value, Described) else value
        for key, value in filters.items()
    }


def _open(link: Any, max_message_bytes: int, session: SessionLock | None = None) -> None:
    """Confirm a link, echoing its ends; a session filter is echoed with the session granted."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    if session is not None:
        link.source.filter.clear()
        link.source.filter.put_object({_SESSION_FILTER: session.session_id})
    if link.is_receiver:
        link.max_message_size = max_message_bytes
    link.open()


def _refuse(link: Any, refusal: Refusal) -> None:
    """As the service does it: confirm the link with no ends, then detach it with the reason."""
    link.source.type = link.target.type = Terminus.UNSPECIFIED
    link.open()
    close(link, refusal)
