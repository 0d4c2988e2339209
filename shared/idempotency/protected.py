"""What every form of consumer is to an adapter."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from .records import Delivery, Handled
from .results import ResultCodec


class Protected(Protocol):
    """A consumer in any form: what an adapter hands deliveries to."""

    @property
    def name(self) -> str: ...

    async def handle[R](
        self,
        delivery: Delivery,
        work: Callable[[], Awaitable[R]],
        codec: ResultCodec[R],
        *,
        wait: float | None = None,
    ) -> Handled[R]:
        """Do the work unless it was done; the outcome says which."""
        ...
