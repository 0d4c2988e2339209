"""A dictionary behind Powertools' persistence interface, which hands nothing back on a refused put."""

import copy
from typing import Any

from aws_lambda_powertools.utilities.idempotency import BasePersistenceLayer
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)


class DictionaryLayer(BasePersistenceLayer):
    """Rows by key. A put is refused while there is a row; the rest of its protocol is as it asks."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Any] = {}

    def _get_record(self, idempotency_key: str) -> Any:
        try:
            return copy.copy(self._rows[idempotency_key])
        except KeyError:
            raise IdempotencyItemNotFoundError from None

    def _put_record(self, data_record: Any) -> None:
        if data_record.idempotency_key in self._rows:
            raise IdempotencyItemAlreadyExistsError
        self._rows[data_record.idempotency_key] = data_record

    def _update_record(self, data_record: Any) -> None:
        self._rows[data_record.idempotency_key] = data_record

    def _delete_record(self, data_record: Any) -> None:
        self._rows.pop(data_record.idempotency_key, None)
