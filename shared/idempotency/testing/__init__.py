"""For tests: a clock that is moved by hand, and the contracts that every store has to keep.

To prove a store of your own, subclass the contract and give it a ``store`` fixture:

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            ...

The contracts' tests are coroutines: run them with pytest-asyncio in its auto mode.
"""

from .clock import FakeClock
from .inboxes import InboxContract
from .outboxes import OutboxContract
from .records import HOSTILE_KEYS, a_record
from .states import StateStoreContract
from .stores import StoreContract

__all__ = [
    "HOSTILE_KEYS",
    "FakeClock",
    "InboxContract",
    "OutboxContract",
    "StateStoreContract",
    "StoreContract",
    "a_record",
]
