"""A service that throttles or is down: bounded retries, and its own hint of when to come back."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from azure.cosmos.aio import CosmosClient
from azure.data.tables.aio import TableClient

from local.services.azurite import ACCOUNT, ACCOUNT_KEY
from local.services.cosmos import CLIENT_OPTIONS, EMULATOR_KEY
from shared.idempotency import ConfigurationError, Store, StoreUnavailable
from shared.idempotency.stores import cosmos_access, table_access
from shared.idempotency.stores.cosmos import CosmosStore
from shared.idempotency.stores.table import TableStore
from shared.idempotency.testing import a_record
from tests.contract.services import records_container


@dataclass
class Service:
    """A service that gives one answer to everything, and counts how often it is asked."""

    status: str = "503 Service Unavailable"
    headers: str = ""
    silent: bool = False
    several_write_regions: bool = False
    requests: list[str] = field(default_factory=list)
    sdk_retries: int = 0
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                length = 0
                while (header := await reader.readline()).strip():
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                await reader.readexactly(length)
                writer.write(self._answer_to(line.decode()))
                await writer.drain()
        finally:
            writer.close()

    def _answer_to(self, request: str) -> bytes:
        if request.startswith("GET / "):
            return self._account()
        self.requests.append(request)
        if self.silent:
            return b""
        return f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n{self.headers}\r\n".encode()

    def _account(self) -> bytes:
        here = [{"name": "Here", "databaseAccountEndpoint": f"http://127.0.0.1:{self.port}/"}]
        account = {
            "id": "account",
            "_self": "",
            "writableLocations": here,
            "readableLocations": here,
            "enableMultipleWriteLocations": self.several_write_regions,
            "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
        }
        body = json.dumps(account).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def _listening(service: Service) -> AsyncIterator[None]:
    server = await asyncio.start_server(service.answer, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()


@asynccontextmanager
async def table(service: Service) -> AsyncIterator[Store]:
    async with _listening(service):
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"TableEndpoint=http://127.0.0.1:{service.port}/{ACCOUNT};"
        )
        async with TableClient.from_connection_string(
            connection, "records", retry_total=service.sdk_retries
        ) as client:
            yield TableStore(client)


@asynccontextmanager
async def cosmos(service: Service) -> AsyncIterator[Store]:
    async with (
        _listening(service),
        CosmosClient(
            f"http://127.0.0.1:{service.port}/",
            EMULATOR_KEY,
            **CLIENT_OPTIONS,
            retry_total=service.sdk_retries,
        ) as client,
    ):
        yield CosmosStore(records_container(client))


type Opened = Callable[[Service], AbstractAsyncContextManager[Store]]
SERVICES = [
    pytest.param(table, "Retry-After: 1\r\n", 1.0, id="table"),
    pytest.param(cosmos, "x-ms-retry-after-ms: 250\r\n", 0.25, id="cosmos"),
]


@pytest.mark.parametrize(("service_of", "hint", "seconds"), SERVICES)
async def test_given_a_429_then_the_hint_is_handed_on_after_bounded_retries(
    service_of: Opened, hint: str, seconds: float
) -> None:
    service = Service(status="429 Too Many Requests", headers=hint, sdk_retries=2)
    async with service_of(service) as store:
        with pytest.raises(StoreUnavailable, match="429") as refused:
            await store.insert(a_record())
    assert refused.value.retry_after == seconds
    assert len(service.requests) == 3


@pytest.mark.parametrize("service_of", [table, cosmos])
@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Service Unavailable"])
async def test_given_a_server_error_then_the_store_is_unavailable_never_absent(
    service_of: Opened, status: str
) -> None:
    service = Service(status=status)
    async with service_of(service) as store:
        for call in (
            lambda: store.read("c", "k"),
            lambda: store.insert(a_record()),
            lambda: store.replace(a_record(), 'W/"1"'),
            lambda: store.delete(a_record(), 'W/"1"'),
        ):
            with pytest.raises(StoreUnavailable):
                await call()


@pytest.mark.parametrize("service_of", [table, cosmos])
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "400 Bad Request"])
async def test_given_a_refusal_that_is_no_condition_then_it_is_not_taken_for_one(
    service_of: Opened, status: str
) -> None:
    async with service_of(Service(status=status)) as store:
        with pytest.raises(StoreUnavailable):
            await store.insert(a_record())


@pytest.mark.parametrize("service_of", [table, cosmos])
async def test_given_no_answer_at_all_then_a_call_ends_long_before_a_lease(
    service_of: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table_access.ANSWER_WITHIN == cosmos_access.ANSWER_WITHIN == 10.0
    monkeypatch.setattr(table_access, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(cosmos_access, "ANSWER_WITHIN", 0.5)
    async with service_of(Service(silent=True)) as store:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.insert(a_record())
        assert time.monotonic() - began < 3


async def test_given_a_table_that_is_being_deleted_then_it_is_no_conflict_of_records() -> None:
    """Its 409 is the table's, not the entity's: it must not be taken for a duplicate."""
    service = Service(status="409 Conflict", headers="x-ms-error-code: TableBeingDeleted\r\n")
    async with table(service) as store:
        with pytest.raises(StoreUnavailable, match="409"):
            await store.insert(a_record())


async def test_given_a_replica_that_lags_then_its_404_is_not_taken_for_absent() -> None:
    service = Service(status="404 Not Found", headers="x-ms-substatus: 1002\r\n")
    async with cosmos(service) as store:
        with pytest.raises(StoreUnavailable, match="404"):
            await store.read("c", "k")


async def test_given_an_account_with_several_write_regions_then_it_is_refused() -> None:
    """⚠ Both regions would accept the insert of one key."""
    service = Service(several_write_regions=True)
    async with cosmos(service) as store:
        with pytest.raises(ConfigurationError, match="several write regions"):
            await store.insert(a_record())
    assert service.requests == []
