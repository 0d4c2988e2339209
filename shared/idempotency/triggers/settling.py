"""What settles what, for every broker alike: the outcome decides, the adapter knows how.

==========================================  ====================================================
outcome                                     settlement
==========================================  ====================================================
processed, duplicate of success, stale      acknowledged
in flight and waited; store down; transient paced: held, then given back
mismatch, missing key, malformed            set aside with the reason
failed, duplicate of failure                set aside with the recorded reason: never acknowledged
quarantined, too old                        set aside with the reason
any other exception                         held, then raised
==========================================  ====================================================
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..clock import Clock
from ..errors import DeliveryRejected, StoreUnavailable, TransientFailure
from ..protected import Protected
from ..records import Delivery, Handled, Outcome
from ..results import ResultCodec
from .pacing import Pacing

_ACKNOWLEDGED = (Outcome.PROCESSED, Outcome.DUPLICATE, Outcome.STALE)
_log = logging.getLogger("idempotency.settling")


class Incoming(Protocol):
    """One message in hand, and the ways in which its broker lets it be settled."""

    @property
    def delivery_count(self) -> int | None:
        """How often it was handed out, this time included."""
        ...

    def delivery(self) -> Delivery:
        """What the consumer needs to know; raises DeliveryRejected when it cannot be told."""
        ...

    async def acknowledge(self) -> None:
        """It is done: it must not come back."""
        ...

    async def set_aside(self, reason: str, description: str) -> None:
        """It can never be done: put it where a person finds it, with the reason."""
        ...

    def give_back(self, error: Exception) -> None:
        """Let it come back later; raises where only an exception can do that."""
        ...


async def settle(
    consumer: Protected,
    message: Incoming,
    work: Callable[[], Awaitable[Any]],
    codec: ResultCodec[Any],
    *,
    pacing: Pacing,
    clock: Clock,
    wait: float | None = None,
) -> None:
    """Have a message handled and settle it by its outcome.

    ``wait``: seconds to wait for an attempt in flight, the consumer's by default.

    A failure to set it aside is paced like any other trouble: a quarantine that is down must not use
    up the message's deliveries within seconds.
    """
    try:
        try:
            handled = await consumer.handle(message.delivery(), work, codec, wait=wait)
        except DeliveryRejected as error:
            await message.set_aside(error.reason, f"consumer {consumer.name}: {error}")
        else:
            await _settle_handled(consumer.name, handled, message)
    except (StoreUnavailable, TransientFailure) as error:
        held = pacing.hold(message.delivery_count, at_least=error.retry_after or 0.0)
        _log.warning("%s: message paced for %.1f s: %s", consumer.name, held, error)
        await clock.sleep(held)
        message.give_back(error)
    except Exception:
        await clock.sleep(pacing.hold(message.delivery_count))
        raise


async def _settle_handled(consumer: str, handled: Handled[Any], message: Incoming) -> None:
    if handled.outcome is Outcome.IN_FLIGHT:
        raise TransientFailure(
            f"consumer {consumer}: another attempt at this key is still in flight; the message comes back"
        )
    if handled.outcome in _ACKNOWLEDGED and not handled.failed:
        await message.acknowledge()
    else:
        await message.set_aside(handled.reason, f"consumer {consumer}: {handled.description}")
