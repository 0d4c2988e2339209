"""The retention check while an app runs: complains loudly, in the log, naming the numbers."""

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from .broker_windows import complaints, windows_in_file, windows_of_namespace
from .records import Policy
from .retention import Window

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_log = logging.getLogger("idempotency.retention")


class RetentionCheck:
    """Holds a policy against the broker's numbers.

    ``dead_letters``: seconds for which a dead letter may lie before it is re-sent. ``unread``: entities
    that no consumer reads.
    """

    def __init__(
        self, policy: Policy, *, dead_letters: float, unread: Collection[str] = ()
    ) -> None:
        self._policy = policy
        self._dead_letters = dead_letters
        self._unread = frozenset(unread)
        self._asked = False

    def at_start(self, entity_file: Path) -> None:
        """Check against an entity file; raises ConfigurationError when it is none."""
        self._complain(windows_in_file(entity_file, dead_letters=self._dead_letters))

    async def once(
        self, connect: "Callable[[], AbstractAsyncContextManager[ServiceBusAdministrationClient]]"
    ) -> None:
        """Check against the namespace, the first time this is called; never raises.

        A namespace tells its numbers only to who may manage it; that it does not is said once.
        """
        if self._asked:
            return
        self._asked = True
        try:
            async with connect() as client:
                windows = await windows_of_namespace(client, dead_letters=self._dead_letters)
        except Exception as error:  # noqa: BLE001 - a check that cannot be made must stop nothing
            _log.info(
                "the namespace does not tell its numbers (%s), so retention was not checked against "
                "them: run `python -m shared.idempotency check` as somebody who may manage it",
                type(error).__name__,
            )
            return
        self._complain(windows)

    def _complain(self, windows: list[Window]) -> None:
        read = [window for window in windows if window.entity not in self._unread]
        for told in complaints(read, self._policy):
            _log.error("%s", told)
