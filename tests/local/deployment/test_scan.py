"""`make infra-check` calls clean only what checkov understood, passed, or was told why to pass over."""

from typing import Any

import pytest

from local.deployment.scan import problems


def _finding(comment: str = "") -> dict[str, Any]:
    return {
        "file_path": "/app.bicep",
        "file_line_range": [7, 9],
        "check_id": "CKV_1",
        "check_name": "Ensure it",
        "check_result": {"suppress_comment": comment},
    }


def _report(**results: Any) -> dict[str, Any]:
    none: dict[str, Any] = {"parsing_errors": [], "failed_checks": [], "skipped_checks": []}
    return {"results": {**none, **results}}


def test_nothing_found_is_clean() -> None:
    assert problems(_report(skipped_checks=[_finding("callers have no certificates")])) == []


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ({"parsing_errors": ["/main.bicep"]}, "/main.bicep: not understood"),
        ({"failed_checks": [_finding()]}, "app.bicep:7: CKV_1 Ensure it"),
        ({"skipped_checks": [_finding("")]}, "app.bicep: CKV_1 is suppressed without a reason"),
        ({"skipped_checks": [_finding("No")]}, "app.bicep: CKV_1 is suppressed without a reason"),
    ],
)
def test_what_is_not_clean_is_told(results: dict[str, Any], told: str) -> None:
    assert problems(_report(**results)) == [told]
