"""Settlement for functions with sessions: what comes back comes back before its successors."""

from typing import Any

import azure.functions as func

from ..errors import TransientFailure
from .service_bus import Settlement


class InOrder:
    """A settlement that gives a message back by failing its invocation, so that the host abandons it.

    Left unsettled, as elsewhere, it would stay locked for as long as the session, and the host would
    hand over its successor: the order would be lost. Abandoned, it is at the head of its session again.
    The pause that `Pacing` holds it for beforehand is what keeps its deliveries from being used up; the
    session stands still meanwhile, and its lock is renewed.
    """

    def __init__(self, settlement: Settlement) -> None:
        self._settlement = settlement
        self.auto_complete = settlement.auto_complete
        self.actions_type = settlement.actions_type

    async def complete(self, message: func.ServiceBusMessage, actions: Any) -> None:
        await self._settlement.complete(message, actions)

    async def dead_letter(
        self, message: func.ServiceBusMessage, actions: Any, *, reason: str, description: str
    ) -> None:
        await self._settlement.dead_letter(message, actions, reason=reason, description=description)

    def give_back(self, why: str) -> None:
        """Raises TransientFailure."""
        raise TransientFailure(f"the message comes back, before its successors: {why}")
