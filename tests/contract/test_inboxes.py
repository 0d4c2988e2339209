"""Every inbox store keeps the contract. A new one is one more line in INBOXES.

The launcher of the local Cosmos server mends its batches: they are atomic, and the operations beside
the one that failed are 424, as the service documents it. The same contract runs on a real account when
one is configured.
"""

from collections.abc import AsyncIterator

import pytest

from shared.idempotency import InboxStore
from shared.idempotency.testing import InboxContract
from tests.contract.services import (
    COSMOS_ACCOUNT,
    TABLES_ACCOUNT,
    Opened,
    azurite_inbox,
    cosmos_account_inbox,
    cosmos_server_inbox,
    memory_inbox,
    tables_account_inbox,
)

INBOXES: dict[str, Opened[InboxStore]] = {
    "memory": memory_inbox,
    "azurite": azurite_inbox,
    "cosmos-server": cosmos_server_inbox,
    **({"tables-account": tables_account_inbox} if TABLES_ACCOUNT else {}),
    **({"cosmos-account": cosmos_account_inbox} if COSMOS_ACCOUNT else {}),
}


@pytest.mark.integration
class TestInboxes(InboxContract):
    @pytest.fixture(params=INBOXES)
    async def inbox(self, request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
        self.has_limits = request.param != "memory"
        self.increments = not request.param.startswith(("azurite", "tables"))
        async with INBOXES[request.param](request) as inbox:
            yield inbox
