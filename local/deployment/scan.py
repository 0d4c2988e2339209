"""Run checkov over infra/: ``python -m local.deployment.scan CHECKOV``.

Clean means: every file was understood, nothing failed, and each suppression says why. checkov itself
counts a file that it cannot parse as fine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .infra import INFRA


def scan(checkov: Path) -> dict[str, Any]:
    """The report on all Bicep files. Raises ValueError when there is none."""
    command = [str(checkov.resolve()), "--directory", str(INFRA), "--framework", "bicep"]
    options = ["--output", "json", "--skip-download", "--compact"]
    told = subprocess.run([*command, *options], capture_output=True, text=True)  # noqa: S603 -- ours
    try:
        report: dict[str, Any] = json.loads(told.stdout)
    except ValueError:
        raise ValueError(f"checkov gave no report: {told.stderr.strip()[-2000:]}") from None
    return report


def problems(report: dict[str, Any]) -> list[str]:
    """What is not clean, a line each."""
    results = report["results"]
    return [
        *(f"{path}: not understood" for path in results["parsing_errors"]),
        *(
            f"{each['file_path'].lstrip('/')}:{each['file_line_range'][0]}: {each['check_id']} "
            f"{each['check_name']}"
            for each in results["failed_checks"]
        ),
        *(
            f"{each['file_path'].lstrip('/')}: {each['check_id']} is suppressed without a reason"
            for each in results["skipped_checks"]
            if len(each["check_result"].get("suppress_comment", "").split()) < 3
        ),
    ]


def main() -> int:
    try:
        report = scan(Path(sys.argv[1]))
    except (ValueError, OSError, IndexError) as error:
        print(f"not scanned: {error}", file=sys.stderr)
        return 1
    found = problems(report)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    summary = report["summary"]
    print(
        f"checkov: {summary['passed']} passed, {summary['failed']} failed, "
        f"{summary['skipped']} suppressed with a reason"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
