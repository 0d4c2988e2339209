"""The table of docs/concepts.md is what `decide` decides."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from shared.idempotency import Status, Stored
from shared.idempotency.decision import decide
from shared.idempotency.testing import a_record
from tests.docs.pages import ROOT

OURS = "this attempt"
SAME, OTHER = "v1:same", "v1:other"

PAGE = (ROOT / "docs" / "concepts.md").read_text("utf-8")
ROWS: dict[str, str] = dict(re.findall(r"^\| (\d+b?) \|.*\| `(\w+)` \|$", PAGE, re.MULTILINE))


def _stored(status: Status, age: float = 0.0, **fields: Any) -> Stored:
    record = a_record("k", status=status, fingerprint=SAME, **fields)
    return Stored(record=record, etag="1", age=age)


OVER = 1000.0
FINISHED: Mapping[str, Any] = {"finished_at": 100.0, "expires_at": 160.0}

EXAMPLES: dict[str, list[tuple[Stored | None, str, bool]]] = {
    "1": [(None, SAME, False)],
    "2": [(_stored(Status.IN_PROGRESS, owner=OURS), SAME, False)],
    "2b": [(_stored(Status.COMPLETED, owner=OURS), SAME, False)],
    "3": [(_stored(Status.QUARANTINED), SAME, False), (_stored(Status.QUARANTINED), OTHER, False)],
    "4": [
        (_stored(Status.IN_PROGRESS), SAME, False),
        (_stored(Status.IN_PROGRESS), OTHER, False),
        (_stored(Status.UNCERTAIN, settle=60.0), SAME, False),
    ],
    "4b": [(_stored(Status.COMPLETED, age=OVER, **FINISHED), OTHER, True)],
    "5": [
        (_stored(Status.COMPLETED), SAME, False),
        (_stored(Status.FAILED), SAME, False),
        (_stored(Status.COMPLETED, age=OVER, **FINISHED), SAME, False),
    ],
    "6": [
        (_stored(Status.COMPLETED), OTHER, False),
        (_stored(Status.FAILED), OTHER, False),
        (_stored(Status.UNCERTAIN, age=OVER), OTHER, False),
        (_stored(Status.RELEASED), OTHER, False),
        (_stored(Status.IN_PROGRESS, age=OVER), OTHER, False),
    ],
    "7": [
        (_stored(Status.IN_PROGRESS, age=OVER), SAME, False),
        (_stored(Status.UNCERTAIN, age=OVER), SAME, False),
    ],
    "8": [(_stored(Status.RELEASED), SAME, False)],
}


def test_the_page_has_the_rows_of_the_function() -> None:
    told = re.findall(r"^\s*(\d+b?) {2,}", decide.__doc__ or "", re.MULTILINE)

    assert list(ROWS) == told == list(EXAMPLES)


@pytest.mark.parametrize("row", EXAMPLES)
def test_every_row_of_the_page_holds(row: str) -> None:
    for stored, fingerprint, reusable in EXAMPLES[row]:
        decision = decide(stored, owner=OURS, fingerprint=fingerprint, reusable=reusable)
        assert decision.action.value == ROWS[row], stored
