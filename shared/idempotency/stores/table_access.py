"""What both Table Storage stores share: errors translated in one place, values that a property can hold."""

import json
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError
from azure.data.tables import EdmType, EntityProperty, TableEntity
from azure.data.tables.aio import TableClient

from ..errors import MalformedContent, StoreUnavailable

_JSON_PROPERTIES = "idempotency_json"
"""Names the properties that hold JSON text, since a property holds scalars only."""
_INT32 = 2**31
_MOST_CHARACTERS = 32 * 1024
_KEYS = frozenset({"PartitionKey", "RowKey", _JSON_PROPERTIES})


async def answer[T](call: Callable[[], Awaitable[T]], table: TableClient) -> T | int:
    """The answer of one call, or the status by which a condition refused it: 404, 409 or 412.

    A missing table is created, and the call issued again. Anything else raises StoreUnavailable.
    """
    try:
        return await call()
    except HttpResponseError as error:
        if code_of(error) == "TableNotFound":
            await _create(table)
            return await answer(call, table)
        if error.status_code in (404, 409, 412):
            return error.status_code
        raise _unavailable(error) from error
    except (AzureError, OSError, TimeoutError) as error:
        raise _unavailable(error) from error


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


def to_entity(partition: str, row: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as an entity; lists and objects become JSON text, named in a reserved property.

    Raises MalformedContent, naming the property, when one is beyond the service's 64 KiB.
    """
    entity: dict[str, Any] = {"PartitionKey": partition, "RowKey": row}
    as_json = []
    for name, value in document.items():
        if isinstance(value, (dict, list, tuple)):
            value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            as_json.append(name)
        if isinstance(value, str) and len(value.encode("utf-16-le")) // 2 > _MOST_CHARACTERS:
            raise MalformedContent(
                f"property {name} has {len(value)} characters; Table Storage keeps "
                f"{_MOST_CHARACTERS} at most",
                reason="ContentTooLarge",
            )
        if isinstance(value, int) and not -_INT32 <= value < _INT32:
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


async def _create(table: TableClient) -> None:
    try:
        await table.create_table()
    except HttpResponseError as error:
        if error.status_code != 409:  # 409: another process was first
            raise _unavailable(error) from error
    except (AzureError, OSError, TimeoutError) as error:
        raise _unavailable(error) from error


def code_of(error: HttpResponseError) -> str:
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    # a refused transaction answers 202 and tells its code in the body only
    return headers.get("x-ms-error-code") or str(getattr(error, "error_code", ""))


def _unavailable(error: Exception) -> StoreUnavailable:
    response = getattr(error, "response", None)
    hint = response.headers.get("Retry-After") if response is not None else None
    retry_after = float(hint) if hint and hint.isdigit() else None
    status = getattr(error, "status_code", None)
    what = f"answered {status}" if status else "did not answer"
    return StoreUnavailable(
        f"Table Storage {what} ({type(error).__name__})", retry_after=retry_after
    )
