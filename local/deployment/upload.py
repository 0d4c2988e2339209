"""Which files ``func azure functionapp publish`` uploads: everything that .funcignore does not deny.

.funcignore looks like a .gitignore and is not one: each line is turned into a pattern that has to match
from the root of the app, and up to a word's end only, so that `test` does not deny `tests/`, and
`__pycache__` denies one folder. azd reads the same file as a .gitignore.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

IGNORE_FILE = ".funcignore"
NEVER_FOLDERS = {".git", ".vscode"}
NEVER_FILES = {IGNORE_FILE, ".gitignore", "local.settings.json", "project.lock.json"}

_NOTHING = re.compile(r"(?!)")


class FuncIgnore:
    """The lines of a .funcignore, as Core Tools takes them; ``!`` takes a denial back."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        kept = [line for line in lines if line and not line.startswith("#")]
        self._denied = _any_of([line for line in kept if not line.startswith("!")])
        self._admitted = _any_of([line[1:] for line in kept if line.startswith("!")])
        self._admits_nothing = self._admitted is _NOTHING

    def denies(self, path: str) -> bool:
        """Whether this path, relative to the app and with slashes, stays at home."""
        return bool(self._denied.match(path)) and not self._admitted.match(path)

    def denies_all_below(self, folder: str) -> bool:
        """Whether nothing in this folder can be uploaded, so that it need not be looked into."""
        return self._admits_nothing and self.denies(folder)


def uploaded_files(app: Path) -> list[str]:
    """The files that would be uploaded, relative to the app and with slashes, sorted.

    Untracked files are among them: what lies in the folder is what is uploaded.
    """
    ignore_file = app / IGNORE_FILE
    ignore = FuncIgnore(ignore_file.read_text("utf-8") if ignore_file.exists() else "")
    return sorted(_walk(app, ignore))


def _walk(app: Path, ignore: FuncIgnore) -> Iterator[str]:
    for folder, folders, files in os.walk(app, followlinks=True):
        here = Path(folder).relative_to(app)
        folders[:] = [
            name
            for name in folders
            if name.lower() not in NEVER_FOLDERS
            and not ignore.denies_all_below((here / name).as_posix())
        ]
        for name in files:
            path = (here / name).as_posix()
            if name.lower() not in NEVER_FILES and not ignore.denies(path):
                yield path


def _any_of(lines: list[str]) -> re.Pattern[str]:
    if not lines:
        return _NOTHING
    patterns = (f"({_pattern(line.removeprefix('/'))})" for line in lines)
    return re.compile(rf"({'|'.join(patterns)})\b", re.ASCII)


def _pattern(line: str) -> str:
    """``**`` stands for anything, ``*`` for anything within one name, all else for itself."""
    escaped = re.sub(r"[-\[\]/{}()+?.\\^$|]", r"\\\g<0>", line)
    return escaped.replace("**", "(.+)").replace("*", "([^/]+)")
