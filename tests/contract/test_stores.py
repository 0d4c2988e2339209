"""Every store keeps the contract. A new store is one more line in STORES."""

from collections.abc import AsyncIterator

import pytest

from shared.idempotency import Store
from shared.idempotency.testing import StoreContract
from tests.contract.services import (
    COSMOS_ACCOUNT,
    TABLES_ACCOUNT,
    Opened,
    azurite_store,
    cosmos_account_store,
    cosmos_server_store,
    memory_store,
    tables_account_store,
)

STORES: dict[str, Opened[Store]] = {
    "memory": memory_store,
    "azurite": azurite_store,
    "cosmos-server": cosmos_server_store,
    **({"tables-account": tables_account_store} if TABLES_ACCOUNT else {}),
    **({"cosmos-account": cosmos_account_store} if COSMOS_ACCOUNT else {}),
}


@pytest.mark.integration
class TestStores(StoreContract):
    @pytest.fixture(params=STORES)
    async def store(self, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
        async with STORES[request.param](request) as store:
            yield store
