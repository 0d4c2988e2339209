"""Every inbox store keeps the contract. A new one is one more line in INBOXES.

The local Cosmos server keeps what came before a refused operation of a batch, where the service
undoes it: atomicity is asserted on the other stores, and on a real account when there is one.
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
    "azurite": azurite_inbox,
    **({"tables-account": tables_account_inbox} if TABLES_ACCOUNT else {}),
    **({"cosmos-account": cosmos_account_inbox} if COSMOS_ACCOUNT else {}),
}


@pytest.mark.integration
class TestInboxes(InboxContract):
    @pytest.fixture(params=INBOXES)
    async def inbox(self, request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
        async with INBOXES[request.param](request) as inbox:
            yield inbox


class TestInboxInMemory(InboxContract):
    has_limits = False

    @pytest.fixture
    async def inbox(self, request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
        async with memory_inbox(request) as inbox:
            yield inbox


@pytest.mark.integration
class TestInboxOnTheLocalCosmosServer(InboxContract):
    rolls_back = False

    @pytest.fixture
    async def inbox(self, request: pytest.FixtureRequest) -> AsyncIterator[InboxStore]:
        async with cosmos_server_inbox(request) as inbox:
            yield inbox
