"""Where the commands look: the running local app, or a deployed one with the caller's own login."""

import contextlib
import json
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ConfigurationError
from ..scanning import Placement, RecordScan
from .exits import Ended, Exit

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

RUN_FILE = Path(".run") / "local.json"
"""Written by `make start`, gone when it ends."""
_ANSWER_WITHIN = 10


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """``[tool.idempotency]`` of pyproject.toml: what there is to look at.

    ``records``: tables or containers with records of their own. ``markers``: those with markers beside
    the data, and the property each is partitioned by in Cosmos DB. ``sources``: the queue, or
    ``topic/subscription``, that each consumer reads. ``entity_file``: the local broker's entities.
    """

    records: tuple[str, ...] = ("idempotency",)
    markers: dict[str, str] = {}
    cosmos_database: str = "orders"
    entity_file: str | None = None
    sources: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> "Catalogue":
        """The catalogue in a pyproject.toml; the defaults where there is none. ConfigurationError."""
        if not path.exists():
            return cls()
        try:
            told = tomllib.loads(path.read_text()).get("tool", {}).get("idempotency", {})
            return msgspec.convert(told, cls)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ConfigurationError(f"{path}: [tool.idempotency]: {error}") from error


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One app's services: by connection string where it is local, by address and login where not."""

    local: bool
    storage: str | None = None
    cosmos: str | None = None
    service_bus: str | None = None
    catalogue: Catalogue = Catalogue()

    def __str__(self) -> str:
        if self.local:
            return "the local app"
        return ", ".join(each for each in (self.cosmos or self.storage, self.service_bus) if each)

    @contextlib.asynccontextmanager
    async def scans(self) -> AsyncIterator[list[RecordScan]]:
        """All places with records, dedicated ones first."""
        async with contextlib.AsyncExitStack() as open_until_then:
            if self.cosmos:
                yield await self._cosmos_scans(open_until_then)
            elif self.storage:
                yield await self._table_scans(open_until_then)
            else:
                raise Ended(
                    Exit.USAGE,
                    "it is not said where the records are: --account or --cosmos-endpoint",
                )

    @contextlib.asynccontextmanager
    async def service_bus_client(self) -> AsyncIterator["ServiceBusClient"]:
        """A client of the namespace."""
        from azure.servicebus.aio import ServiceBusClient

        if not self.service_bus:
            raise Ended(Exit.USAGE, "it is not said where Service Bus is: --namespace")
        async with contextlib.AsyncExitStack() as open_until_then:
            if self.local:
                # on this machine what does not work at once does not work
                client = ServiceBusClient.from_connection_string(self.service_bus, retry_total=0)
            else:
                credential = await _login(open_until_then)
                client = ServiceBusClient(self.service_bus, credential)
            yield await open_until_then.enter_async_context(client)

    async def _table_scans(self, stack: contextlib.AsyncExitStack) -> list[RecordScan]:
        from azure.data.tables.aio import TableServiceClient

        from ..stores.table_scan import TableScan

        options: dict[str, Any] = {"retry_total": 2, "connection_timeout": _ANSWER_WITHIN}
        if self.local:
            service = TableServiceClient.from_connection_string(self.storage or "", **options)
        else:
            credential = await _login(stack)
            service = TableServiceClient(self.storage or "", credential=credential, **options)
        service = await stack.enter_async_context(service)
        return [
            TableScan(service.get_table_client(name), placement=placement)
            for name, placement in self._names()
        ]

    async def _cosmos_scans(self, stack: contextlib.AsyncExitStack) -> list[RecordScan]:
        from azure.cosmos.aio import CosmosClient

        from ..stores.cosmos_access import Container
        from ..stores.cosmos_scan import CosmosScan

        if self.local:
            client = CosmosClient.from_connection_string(
                self.cosmos or "", connection_verify=False, enable_endpoint_discovery=False
            )
        else:
            client = CosmosClient(self.cosmos or "", await _login(stack))
        client = await stack.enter_async_context(client)
        scans: list[RecordScan] = []
        for name, placement in self._names():
            partition = self.catalogue.markers.get(name, "id")
            container = Container(
                client,
                database=self.catalogue.cosmos_database,
                container=name,
                partition_path=f"/{partition}",
            )
            scans.append(CosmosScan(container, placement=placement, partition_property=partition))
        return scans

    def _names(self) -> list[tuple[str, Placement]]:
        dedicated = [(name, Placement.DEDICATED) for name in self.catalogue.records]
        return dedicated + [(name, Placement.BESIDE_DATA) for name in self.catalogue.markers]


async def _login(stack: contextlib.AsyncExitStack) -> Any:
    from azure.identity.aio import DefaultAzureCredential

    return await stack.enter_async_context(DefaultAzureCredential())


def local_target(run_file: Path, catalogue: Catalogue) -> Target:
    """The app that `make start` runs. Raises Ended when none does."""
    try:
        running: Mapping[str, Any] = json.loads(run_file.read_text())
        return Target(
            local=True,
            storage=running["storage"],
            cosmos=running.get("cosmos"),
            service_bus=running.get("service_bus"),
            catalogue=catalogue,
        )
    except FileNotFoundError:
        raise Ended(
            Exit.USAGE,
            "no app is named and none runs here: `make start` in another terminal, or --account and "
            "--namespace of a deployed one (`azd env get-values` tells them)",
        ) from None
    except (ValueError, LookupError):
        raise Ended(Exit.USAGE, f"{run_file}: the app is still starting: try again") from None


def deployed_target(
    *, account: str | None, cosmos: str | None, namespace: str | None, catalogue: Catalogue
) -> Target:
    """A deployed app, by the names or addresses of its services."""
    if account and "://" not in account:
        account = f"https://{account}.table.core.windows.net"
    if namespace and "." not in namespace:
        namespace = f"{namespace}.servicebus.windows.net"
    return Target(
        local=False, storage=account, cosmos=cosmos, service_bus=namespace, catalogue=catalogue
    )
