"""Write the documents that are made from the code: ``python -m local.documentation``."""

import sys
from pathlib import Path

from .configuration import Unexplained, document

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def main() -> int:
    """Write docs/configuration.md; the exit code."""
    try:
        PAGE.write_text(document(), encoding="utf-8")
    except Unexplained as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
