"""What the demo tells while it runs: a spinner at a terminal, a line for each act anywhere."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.status import Status

type Detail = Callable[[str], None]
"""Says how far an act is, and with its last call what came of it."""


class Narration:
    """Speaks on one console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextlib.contextmanager
    def act(self, title: str) -> Iterator[Detail]:
        """Tell one act; what it says last, and how long it took, stay on the screen."""
        began = time.monotonic()
        said = ""
        with contextlib.ExitStack() as opened:
            status: Status | None = None
            if self._console.is_terminal:
                status = opened.enter_context(self._console.status(title))

            def detail(text: str) -> None:
                nonlocal said
                said = text
                if status is not None:
                    status.update(f"{title}: {text}")

            yield detail
        seconds = time.monotonic() - began
        line = f"{seconds:5.1f} s  {title}" + (f": {said}" if said else "")
        self._console.print(line, soft_wrap=True)
