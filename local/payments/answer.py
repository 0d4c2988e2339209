"""What the provider says, before it is HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a JSON body, and the headers that belong to them."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    def replayed(self) -> "Answer":
        """The same once more, marked as such."""
        return replace(self, headers={**self.headers, "Idempotent-Replayed": "true"})


def problem(status: int, code: str, detail: str, retry_after: int | None = None) -> Answer:
    """A refusal or failure as problem+json.

    code: what programs look at, such as `card_declined`.
    retry_after: seconds; None leaves the header out.
    """
    body = {
        "type": f"/problems/{code}",
        "title": _title(status),
        "status": status,
        "detail": detail,
        "code": code,
    }
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer(status, body, headers, content_type="application/problem+json")


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
