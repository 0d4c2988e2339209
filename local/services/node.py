"""The programs that `npm ci` puts beside `local/package.json`."""

from pathlib import Path

from local.services.processes import ServiceError

LOCAL = Path(__file__).parents[1]
MODULES = LOCAL / "node_modules"
INSTALL = "npm ci --no-audit --no-fund --prefix local"


def installed(package: str, file: str) -> Path:
    """The path of a file of an installed package.

    Raises ServiceError, with the command that installs it, when it is not there.
    """
    path = MODULES / package / file
    if not path.is_file():
        raise ServiceError(f"{package}: not installed; run `{INSTALL}`")
    return path
