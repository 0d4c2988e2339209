"""An app in a clean process, invoked through the real worker, without any service.

with Invoker(app) as invoker:
    answer = invoker("process_order", body="{}", message_id="o-1")
    assert answer["succeeded"] and answer["settlements"] == [["complete"]]
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class AppNotLoaded(Exception):
    """The app does not load; the message is the worker's."""


class Invoker:
    """The driver `local.host.invoke` with an app. Entered, the app is loaded.

    environment: settings on top of this process's environment.
    Raises AppNotLoaded on entering.
    """

    def __init__(self, app: Path, environment: Mapping[str, str] | None = None) -> None:
        self._app = app.resolve()
        self._environment = {**os.environ, **(environment or {})}
        self.functions: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - this repository's own program
            [sys.executable, "-m", "local.host.invoke", "--app", str(self._app)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            cwd=ROOT,
            text=True,
            encoding="utf-8",
        )
        try:
            first = self._read()
            if "error" in first:
                raise AppNotLoaded(first["error"])
        except BaseException:
            self.__exit__()
            raise
        self.functions = first["functions"]
        return self

    def __exit__(self, *_error: object) -> None:
        # The end of its input ends it; reading and closing leave no pipe open.
        self._process.communicate()

    def __call__(self, function: str, *, retry_count: int = 0, **arguments: Any) -> dict[str, Any]:
        """Invoke a function with the arguments of the builder for its trigger; see `inputs`."""
        order = {"function": function, "arguments": arguments, "retry_count": retry_count}
        return self._ask(order)

    def raw(
        self, function: str, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Invoke a function with data in the worker's own form, such as {"json": "{}"}."""
        return self._ask({"function": function, "data": data, "metadata": metadata or {}})

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        print(json.dumps(order, default=_plain), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the worker ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be passed to a function's builder")
