"""Sends what was committed: right after the commit, and by sweeping what was left behind."""

import logging
from collections.abc import Awaitable, Sequence

import msgspec

from .clock import Clock, SystemClock
from .errors import StoreUnavailable, TransientFailure
from .events import MessageRelayed, Observer, ignore, undisturbed
from .fencing import answered
from .inbox_store import Operation
from .outbox import Message, OutboxStore, Parcel, Send, pending_id

_log = logging.getLogger("idempotency.outbox")

COMMIT_WITHIN = 600.0
"""Seconds after its announcement in which a commit may still be begun."""
FORGET_AFTER = 3600.0
"""Seconds after which an announced commit that is not there will not come any more: six times what a
commit may take to begin, far more than any request is under way, and than clocks of workers differ."""
_LONGEST_PAUSE = 3600.0
_CLEAR_WITHIN = 5.0
_FAILURES_IN_A_ROW = 3
"""After so many the broker counts as down, and what is due stays due."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep did, in parcels.

    ``left``: tried in vain, and due again later. ``undecided``: announced, but its commit is not there,
    or not yet. ``forgotten``: announced an hour ago, and its commit never came.
    """

    relayed: int = 0
    left: int = 0
    claimed_by_others: int = 0
    undecided: int = 0
    forgotten: int = 0


class Outbox:
    """The way out for the messages of the consumers on one store.

    ``grace``: seconds after the commit in which the messages are left to the process that committed
    them; a sweeper then takes what is still there, and waits twice as long after every vain try.
    """

    def __init__(
        self,
        store: OutboxStore,
        send: Send,
        *,
        grace: float = 60.0,
        observer: Observer = ignore,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._send = send
        self._grace = grace
        self._observer = undisturbed(observer)
        self._clock = clock or SystemClock()

    async def announced(
        self, partition: str, owner: str, messages: Sequence[Message], *, within: float
    ) -> Parcel:
        """The messages as a parcel that may be committed now: a sweeper will find it.

        Raises StoreUnavailable when the store did not take the pointer within that many seconds.
        """
        now = self._clock.now()
        parcel = Parcel(
            partition=partition,
            owner=owner,
            messages=tuple(msgspec.structs.replace(m, enqueued_at=now) for m in messages),
            due_at=now + self._grace,
            announced_at=now,
        )
        if self._store.announces:
            await answered(lambda: self._store.announce(parcel), self._clock, within=within)
        return parcel

    def check(self, parcel: Parcel) -> None:
        """Raise StoreUnavailable when it is too late to commit: the pointer might be gone by then."""
        if self._clock.now() > parcel.announced_at + COMMIT_WITHIN:
            raise StoreUnavailable(
                "the messages of this commit were announced too long ago; nothing was written, and the next "
                "delivery announces them anew"
            )

    async def withdraw(self, parcel: Parcel) -> None:
        """Take back the announcement of a commit that was refused for good; a vain try does no harm."""
        if self._store.announces:
            await self._tried(parcel, self._store.forget(parcel))

    async def relay(self, parcel: Parcel, *, by: str = "commit") -> bool:
        """Send the messages of a committed parcel, in their order; whether all of them were sent.

        Never raises for what a broker or store can do to it: what was not sent, or sent and not taken
        away, is left to the sweeper.
        """
        sent = []
        for message in parcel.messages:
            if not await self._sent(message, by):
                break
            sent.append(message)
        complete = len(sent) == len(parcel.messages)
        await self._tried(parcel, self._clear(parcel, sent, complete=complete))
        return complete

    async def sweep(self, *, batch: int = 50, within: float = 45.0) -> Swept:
        """Send what is due; safe beside live traffic and other sweepers, for ``within`` seconds.

        What is left when the time is up is due in the next sweep. Raises StoreUnavailable when the
        store cannot be searched.
        """
        ends = self._clock.monotonic() + within
        done = Swept()
        failures = 0
        while parcels := await self._store.due(self._clock.now(), batch):
            before = done
            for parcel in parcels:
                if failures == _FAILURES_IN_A_ROW or self._clock.monotonic() >= ends:
                    return done
                what = await self._taken(parcel)
                failures = failures + 1 if what == "left" else 0
                done = msgspec.structs.replace(done, **{what: getattr(done, what) + 1})
            if done.claimed_by_others - before.claimed_by_others == len(parcels):
                return done  # another sweeper is at work
        return done

    async def _taken(self, parcel: Parcel) -> str:
        """Claim one due parcel and send it; the name of what it counts as in Swept."""
        now = self._clock.now()
        gone_at = parcel.announced_at + FORGET_AFTER
        try:
            if not parcel.messages and now > gone_at:
                await self._store.forget(parcel)
                return "forgotten"
            pause = min(max(self._grace, 1.0) * 2**parcel.sends, _LONGEST_PAUSE)
            until = now + pause if parcel.messages else gone_at + 1.0
            claimed = await self._store.postpone(parcel, until)
        except StoreUnavailable as error:
            _log.warning("a parcel could not be claimed: %s", error)
            return "left"
        if claimed is None:
            return "claimed_by_others"
        if not parcel.messages:
            return "undecided"
        again = [msgspec.structs.replace(m, resends=claimed.sends) for m in claimed.messages]
        claimed = msgspec.structs.replace(claimed, messages=tuple(again))
        return "relayed" if await self.relay(claimed, by="sweep") else "left"

    async def _sent(self, message: Message, by: str) -> bool:
        try:
            await self._send(message)
        except TransientFailure as error:
            _log.warning("%r was not sent: %s", message, error)
        except Exception:  # noqa: BLE001 - the commit is done: its delivery must not fail by this
            _log.exception("%r was not sent", message)
        else:
            self._observer(MessageRelayed(destination=message.destination, by=by, sent=True))
            return True
        self._observer(MessageRelayed(destination=message.destination, by=by, sent=False))
        return False

    async def _clear(self, parcel: Parcel, sent: Sequence[Message], *, complete: bool) -> None:
        """Take away what was sent, whoever has claimed it meanwhile: the broker has it."""
        deletes = [Operation(kind="delete", id=pending_id(parcel.owner, m.ordinal)) for m in sent]
        while deletes:
            refused = await answered(
                lambda: self._store.commit(parcel.partition, tuple(deletes)),
                self._clock,
                within=_CLEAR_WITHIN,
                tries=2,
            )
            if refused is None:
                break
            del deletes[refused.index]  # somebody else was as quick
        if complete and self._store.announces:
            await self._store.forget(parcel)

    async def _tried(self, parcel: Parcel, call: Awaitable[None]) -> None:
        """What can be left to the sweeper."""
        try:
            await call
        except StoreUnavailable as error:
            _log.warning("parcel %s is left to the sweeper: %s", parcel.owner, error)
