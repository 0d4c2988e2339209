"""What both Cosmos DB stores share: a container made if missing, errors translated in one place."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError

from ..errors import ConfigurationError, MalformedContent, StoreUnavailable

_READ_SESSION_NOT_AVAILABLE = 1002
_SYSTEM = frozenset({"_etag", "_rid", "_self", "_ts", "_attachments"})

ANSWER_WITHIN: Final = 10.0
"""Seconds for one call, the SDK's own retries included: far less than a lease."""
LOCAL_CLOCK_ALLOWANCE = 60.0
"""Seconds by which this machine's clock may be ahead of the service's."""


class Container:
    """One container of one account; nothing is sent before the first call.

    Accounts with several write regions are refused: both regions would take the insert of one key.
    A missing container is created where the credential may (a local server, a key); with an identity
    it is the deployment that creates it.
    """

    def __init__(
        self, client: CosmosClient, *, database: str, container: str, partition_path: str
    ) -> None:
        self._client = client
        self._database = database
        self._name = container
        self._partition_path = partition_path
        self._checked = False
        self.items: ContainerProxy = client.get_database_client(database).get_container_client(
            container
        )

    async def answer[T](
        self, call: Callable[[], Awaitable[T]], *, creates: bool = False
    ) -> T | int:
        """The answer of one call, or the status by which a condition refused it: 404, 409 or 412.

        ``creates``: the call creates an item, so that 404 can only mean that the container is missing.
        Raises MalformedContent when the service finds the items too large, StoreUnavailable for
        anything else, and after `ANSWER_WITHIN`.
        """
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await self._refuse_several_write_regions()
                answer = await _answer_or_status(call)
                if answer == 404 and creates:
                    await self._create()
                    answer = await _answer_or_status(call)
                return answer
        except HttpResponseError as error:
            if error.status_code == 413:
                raise MalformedContent(
                    "Cosmos DB cannot hold so much: 2 MB for an item or a batch. Keep what is large "
                    "elsewhere, and its address here",
                    reason="ContentTooLarge",
                ) from error
            raise unavailable(error) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def create(self, item: dict[str, Any]) -> str | None:
        """The ETag of the item that was created; None when there is one in its place."""
        answered = await self.answer(
            lambda: self.items.create_item(item, no_response=True), creates=True
        )
        return None if isinstance(answered, int) else etag_in(answered.get_response_headers())

    async def replace(self, item: dict[str, Any], *, etag: str) -> str | None:
        """Replace the whole item if it is still the one ``etag`` names: its new ETag, or None."""
        answered = await self.answer(
            lambda: self.items.replace_item(
                item["id"],
                item,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
                no_response=True,
            )
        )
        return None if isinstance(answered, int) else etag_in(answered.get_response_headers())

    async def delete(self, id_: str, partition: str, *, etag: str) -> bool:
        """Delete an item if it is still the one ``etag`` names; False when it is not, or is gone."""
        answered = await self.answer(
            lambda: self.items.delete_item(
                id_, partition, etag=etag, match_condition=MatchConditions.IfNotModified
            )
        )
        return answered is None

    async def close(self) -> None:
        """Close the client, which other containers may share."""
        await self._client.close()

    async def _refuse_several_write_regions(self) -> None:
        if self._checked:
            return
        account = await self._client._get_database_account()  # no public call tells it
        if account._EnableMultipleWritableLocations:
            raise ConfigurationError(
                "the Cosmos DB account has several write regions: two regions would both accept the "
                "insert of one key. Use an account with a single write region"
            )
        self._checked = True

    async def _create(self) -> None:
        try:
            # somebody else may be first, at each of the two
            with contextlib.suppress(CosmosResourceExistsError):
                await self._client.create_database(self._database)
            database = self._client.get_database_client(self._database)
            with contextlib.suppress(CosmosResourceExistsError):
                await database.create_container(
                    self._name, PartitionKey(self._partition_path), default_ttl=-1
                )
        except CosmosHttpResponseError as error:
            raise StoreUnavailable(
                f"Cosmos DB container {self._database}/{self._name} does not exist and may not be "
                f"created with this credential ({error.status_code}): deploy it first"
            ) from error


async def _answer_or_status[T](call: Callable[[], Awaitable[T]]) -> T | int:
    try:
        return await call()
    except HttpResponseError as error:
        # a replica that has not caught up with the session also answers 404
        lagging = getattr(error, "sub_status", None) == _READ_SESSION_NOT_AVAILABLE
        if error.status_code in (404, 409, 412) and not lagging:
            return error.status_code
        raise


def age_of(item: Mapping[str, Any], headers: Mapping[str, str]) -> float:
    """Seconds since the item was last written, by the service's clock, which counts whole seconds.

    An answer without a Date is judged by this machine's clock, less an allowance for its error.
    """
    date = next((value for name, value in headers.items() if name.lower() == "date"), None)
    now = parsedate_to_datetime(date).timestamp() if date else time.time() - LOCAL_CLOCK_ALLOWANCE
    return max(0.0, now - float(item["_ts"]))


def etag_in(headers: Mapping[str, str]) -> str:
    """The ETag a write was answered with."""
    return next(value for name, value in headers.items() if name.lower() == "etag")


def without_system(item: Mapping[str, Any]) -> dict[str, Any]:
    """The document in an item."""
    return {name: value for name, value in item.items() if name not in _SYSTEM}


def unavailable(error: Exception) -> StoreUnavailable:
    """The one translation of what the driver raises."""
    headers = getattr(error, "headers", None) or {}
    hint = headers.get("x-ms-retry-after-ms")
    status = getattr(error, "status_code", None)
    what = f"answered {status}" if status else "did not answer"
    refused = status in (401, 403) or isinstance(error, ClientAuthenticationError)
    way_out = (
        ": give the app's identity the role Cosmos DB Built-in Data Contributor, and let it through the "
        "account's firewall"
    )
    return StoreUnavailable(
        f"Cosmos DB {what} ({type(error).__name__}){way_out if refused else ''}",
        retry_after=float(hint) / 1000 if hint else None,
    )
