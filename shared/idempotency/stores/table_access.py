"""What both Table Storage stores share: errors translated in one place, values that a property can hold."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableEntity,
    TableTransactionError,
    UpdateMode,
)
from azure.data.tables.aio import TableClient

from ..errors import ConfigurationError, MalformedContent, StoreUnavailable

ANSWER_WITHIN: Final = 10.0
"""Seconds for one call, the SDK's own retries included: far less than a lease."""
_JSON_PROPERTIES = "idempotency_json"
"""Names the properties that hold JSON text, since a property holds scalars only."""
_INT32 = 2**31
_INT64 = 2**63
_MOST_CHARACTERS = 32 * 1024
_KEYS = frozenset({"PartitionKey", "RowKey", _JSON_PROPERTIES})
_OF_SERVICE = frozenset({*_KEYS, "Timestamp"})
_TOO_LARGE = frozenset(
    {"EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "TooManyProperties"}
)


async def answer[T](call: Callable[[], Awaitable[T]], table: TableClient) -> T | int:
    """The answer of one call, or the status by which a condition refused it: 404, 409 or 412.

    A missing table is created, and the call issued again. Raises MalformedContent when the service
    finds the entities too large, StoreUnavailable for anything else, and after `ANSWER_WITHIN`.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            try:
                return await _answer_or_status(call)
            except HttpResponseError as error:
                if code_of(error) != "TableNotFound":
                    raise
                await _create(table)
                return await _answer_or_status(call)
    except HttpResponseError as error:
        if error.status_code == 413 or code_of(error) in _TOO_LARGE:
            raise MalformedContent(
                f"Table Storage cannot hold so much ({code_of(error)}): 1 MiB for an entity, 4 MiB for a "
                "transaction. Keep what is large elsewhere, and its address here",
                reason="ContentTooLarge",
            ) from error
        raise unavailable(error) from error
    except (AzureError, OSError, TimeoutError) as error:
        raise unavailable(error) from error


async def _answer_or_status[T](call: Callable[[], Awaitable[T]]) -> T | int:
    try:
        return await call()
    except HttpResponseError as error:
        if is_refusal(error):
            return error.status_code or 0
        raise


def is_refusal(error: HttpResponseError) -> bool:
    """Whether a condition was refused: an entity is there, is gone, or is another by now."""
    code = code_of(error)
    # 409 is also what a table says that is being deleted
    return code == "EntityAlreadyExists" or (
        error.status_code in (404, 412) and code != "TableNotFound"
    )


async def read(table: TableClient, partition: str, row: str) -> tuple[TableEntity, float] | None:
    """An entity and its age in seconds, by the service's clock: the answer's Date less its Timestamp."""
    dates: list[str] = []

    def note_date(response: Any) -> None:
        dates.append(response.http_response.headers.get("Date", ""))

    found = await answer(
        lambda: table.get_entity(partition, row, raw_response_hook=note_date), table
    )
    if isinstance(found, int):
        return None
    answered_at = parsedate_to_datetime(dates[-1])
    written_at = found.metadata["timestamp"] or answered_at
    return found, max(0.0, (answered_at - written_at).total_seconds())


async def create(table: TableClient, entity: Mapping[str, Any]) -> str | None:
    """The ETag of the entity that was created; None when there is one in its place."""
    answered = await answer(lambda: table.create_entity(entity), table)
    return None if isinstance(answered, int) else str(answered["etag"])


async def replace(table: TableClient, entity: Mapping[str, Any], *, etag: str) -> str | None:
    """Replace the whole entity if it is still the one ``etag`` names: its new ETag, or None."""
    answered = await answer(
        lambda: table.update_entity(
            entity,
            mode=UpdateMode.REPLACE,
            etag=etag,
            match_condition=MatchConditions.IfNotModified,
        ),
        table,
    )
    return None if isinstance(answered, int) else str(answered["etag"])


async def submit(table: TableClient, operations: list[Any]) -> TableTransactionError | None:
    """Do all operations on one partition, or none: then the refusal, which names the one at fault."""

    async def submitted() -> TableTransactionError | None:
        try:
            await table.submit_transaction(operations)
        except TableTransactionError as error:
            if is_refusal(error):
                return error
            raise
        return None

    refused = await answer(submitted, table)
    if isinstance(refused, int):
        raise StoreUnavailable(f"Table Storage answered {refused} to a whole transaction")
    return refused


async def delete(table: TableClient, partition: str, row: str, *, etag: str) -> bool:
    """Delete an entity if it is still the one ``etag`` names; False when it is not, or is gone."""
    statuses: list[int] = []  # the SDK takes 404 for success; we tell gone from deleted

    def note_status(response: Any) -> None:
        statuses.append(response.http_response.status_code)

    refused = await answer(
        lambda: table.delete_entity(
            partition,
            row,
            etag=etag,
            match_condition=MatchConditions.IfNotModified,
            raw_response_hook=note_status,
        ),
        table,
    )
    return refused is None and statuses[-1] != 404


def to_entity(partition: str, row: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as an entity; lists and objects become JSON text, named in a reserved property.

    Raises MalformedContent, naming the property, when one is beyond the service's 64 KiB or of no
    value that it can hold, ConfigurationError when one has a name that is the service's own.
    """
    taken = _OF_SERVICE & document.keys()
    if taken:
        raise ConfigurationError(
            f"properties named {sorted(taken)} are Table Storage's own: name them otherwise"
        )
    entity: dict[str, Any] = {"PartitionKey": partition, "RowKey": row}
    as_json = []
    for name, value in document.items():
        if isinstance(value, (dict, list, tuple)):
            value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            as_json.append(name)
        if isinstance(value, str):
            _check_text(name, value)
        if isinstance(value, int) and not -_INT32 <= value < _INT32:
            if not -_INT64 <= value < _INT64:
                raise MalformedContent(
                    f"property {name} is a number of more than 64 bits: write it as text"
                )
            value = EntityProperty(value, EdmType.INT64)
        if value is not None:
            entity[name] = value
    if as_json:
        entity[_JSON_PROPERTIES] = ",".join(as_json)
    return entity


def to_document(entity: Mapping[str, Any]) -> dict[str, Any]:
    """The document in an entity."""
    as_json = str(entity.get(_JSON_PROPERTIES, "")).split(",")
    document = {}
    for name, value in entity.items():
        if name in _KEYS:
            continue
        plain = value.value if isinstance(value, EntityProperty) else value
        document[name] = json.loads(plain) if name in as_json else plain
    return document


def _check_text(name: str, value: str) -> None:
    try:
        characters = len(value.encode("utf-16-le")) // 2
    except UnicodeEncodeError as error:
        raise MalformedContent(f"property {name} holds half a surrogate pair") from error
    if characters > _MOST_CHARACTERS:
        raise MalformedContent(
            f"property {name} has {characters} characters; Table Storage keeps "
            f"{_MOST_CHARACTERS} at most",
            reason="ContentTooLarge",
        )


async def _create(table: TableClient) -> None:
    try:
        await table.create_table()
    except HttpResponseError as error:
        if error.status_code != 409:  # 409: another process was first
            raise


def code_of(error: HttpResponseError) -> str:
    """The service's name for what is wrong."""
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    # a refused transaction answers 202 and tells its code in the body only
    return headers.get("x-ms-error-code") or str(getattr(error, "error_code", ""))


def unavailable(error: Exception) -> StoreUnavailable:
    """The one translation of what the driver raises."""
    response = getattr(error, "response", None)
    hint = response.headers.get("Retry-After") if response is not None else None
    retry_after = float(hint) if hint and hint.isdecimal() else None
    status = getattr(error, "status_code", None)
    what = f"answered {status}" if status else "did not answer"
    refused = status in (401, 403) or isinstance(error, ClientAuthenticationError)
    way_out = ": give the app's identity the role Storage Table Data Contributor" if refused else ""
    return StoreUnavailable(
        f"Table Storage {what} ({type(error).__name__}){way_out}", retry_after=retry_after
    )
