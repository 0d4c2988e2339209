"""The operator's commands: look at records, change one by hand, re-send dead letters, check settings.

Needs the extra `operator` (typer, rich). Never deployed.
"""

import sys


def main() -> None:
    """Run the command line; says how to install what it needs."""
    try:
        import typer  # noqa: F401 - only whether it is there
    except ImportError:
        sys.exit("the commands need typer and rich: pip install -e '.[operator]'")
    from .commands import app

    app()
