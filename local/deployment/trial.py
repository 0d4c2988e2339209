"""The app in its package: what it imports is there, it loads, it answers, and it says what is missing."""

import ast
import json
import os
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .infra import app_settings

INSTALLED = Path(__file__).with_name("installed.py")
STORES = ("table", "cosmos")
COMPOSITION_ROOT = "function_app"
LONGEST = 120.0
STARTS = 3
HEAVIEST = 5

NOT_HERE = {
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY",
}
"""Deployed settings that a trial goes without: they would send to Azure."""


class TrialFailed(Exception):
    """The package would not work, or not only, when deployed; the message says why."""


@dataclass(frozen=True)
class Trial:
    """A package, the interpreter its requirements are installed for, the worker's library, and a
    folder with this repository's `local` in it."""

    package: Path
    python: Path
    worker: Path
    host: Path

    def run(self) -> Iterator[str]:
        """Everything, and what was found, a line each. Raises TrialFailed."""
        yield f"imports: all {self.imports_everything()} modules that the app names are there"
        self.is_not_shadowed()
        yield "shadows: no distribution ships a module of the app's names"
        for store in STORES:
            yield f"loads with {store}: {', '.join(self.loads(store))}; health answers 200"
        yield f"without storage: {self.complains_without('AzureWebJobsStorage__accountName')}"
        milliseconds, heaviest = self.starts_within()
        most = ", ".join(f"{name} {own:.0f}" for name, own in heaviest)
        yield f"cold start: {milliseconds:.0f} ms to import the app, of which {most}"

    def imports_everything(self) -> int:
        """How many modules the package names in its imports, late ones too; all can be imported."""
        imports = self._imports()
        names = sorted(imports | self._modules() - {COMPOSITION_ROOT})
        if missing := self._ask_installed("imports", names):
            raise TrialFailed(f"cannot be imported: {'; '.join(missing)}")
        return len(imports)

    def is_not_shadowed(self) -> None:
        """No installed distribution has a module of the package's names."""
        names = sorted({name.partition(".")[0] for name in self._modules()})
        if found := self._ask_installed("shadows", names):
            raise TrialFailed(f"hidden by an installed distribution: {'; '.join(found)}")

    def loads(self, store: str) -> list[str]:
        """The functions the worker finds with the deployed settings; asked for it, health is good."""
        loaded, *answers = self._invoke(_settings(store), {"function": "health"})
        if "error" in loaded:
            raise TrialFailed(f"does not load with {store}: {loaded['error']}")
        response = answers[0].get("response")
        if not response or response["status"] != 200:
            raise TrialFailed(f"health with {store}: {answers[0]}")
        body = json.loads(response["body"])
        if (body["status"], body["store"], body["service_bus"]) != ("ok", store, True):
            raise TrialFailed(f"health with {store} says {body}")
        return sorted(loaded["functions"])

    def complains_without(self, name: str) -> str:
        """What the app says when this setting is missing: it has to name it."""
        settings = {key: value for key, value in _settings("table").items() if key != name}
        loaded, *_answers = self._invoke(settings, {"function": "health"})
        complaint = str(loaded.get("error", "")).partition("Traceback")[0].strip()
        if name not in complaint:
            raise TrialFailed(f"without {name}, the app says {loaded}")
        return complaint

    def starts_within(self) -> tuple[float, list[tuple[str, float]]]:
        """Milliseconds to import the app, the median of a few starts, and the most that goes to one."""
        runs = [self._import_times() for _ in range(STARTS)]
        _, spent = runs[-1]
        heaviest = sorted(spent.items(), key=lambda each: -each[1])[:HEAVIEST]
        return statistics.median(total for total, _ in runs), heaviest

    def _modules(self) -> set[str]:
        """The package's own modules."""
        paths = (path.relative_to(self.package) for path in self.package.rglob("*.py"))
        return {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}

    def _imports(self) -> set[str]:
        """Every module that is imported anywhere in the package, also where it is used late."""
        found: set[str] = set()
        for path in self.package.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    found.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module)
        return found

    def _ask_installed(self, question: str, names: list[str]) -> list[str]:
        told = self._python([str(INSTALLED), question], {}, self.package, said="\n".join(names))
        if told.returncode:
            raise TrialFailed(told.stderr.strip()[-2000:])
        return told.stdout.split("\n")[:-1] if told.stdout.strip() else []

    def _invoke(self, settings: Mapping[str, str], *orders: Mapping[str, Any]) -> list[Any]:
        """The driver's answers: what was loaded, then one for each order it got to."""
        command = ["-m", "local.host.invoke", "--app", str(self.package)]
        environment = {**settings, "PYTHONPATH": str(self.worker)}
        said = "".join(json.dumps(order) + "\n" for order in orders)
        told = self._python(command, environment, self.host, said=said)
        if not told.stdout:
            raise TrialFailed(f"the worker did not answer: {told.stderr.strip()[-2000:]}")
        return [json.loads(line) for line in told.stdout.splitlines()]

    def _import_times(self) -> tuple[float, dict[str, float]]:
        """Milliseconds for the whole app, and by distribution: the first two names of Azure's."""
        command = ["-X", "importtime", "-c", f"import {COMPOSITION_ROOT}"]
        told = self._python(command, _settings("table"), self.package)
        times: dict[str, float] = defaultdict(float)
        pattern = r"^import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)$"
        for own, cumulative, module in re.findall(pattern, told.stderr, re.MULTILINE):
            if module == COMPOSITION_ROOT:
                return int(cumulative) / 1000, times
            parts = module.split(".")
            times[".".join(parts[: 2 if parts[0] == "azure" else 1])] += int(own) / 1000
        raise TrialFailed(f"the app is not importable: {told.stderr.strip()[-2000:]}")

    def _python(
        self, command: list[str], environment: Mapping[str, str], folder: Path, said: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the package's interpreter there, with nothing of this process's environment.

        Nothing is written into the package.
        """
        return subprocess.run(  # noqa: S603 -- our own words
            [str(self.python), *command],
            input=said,
            capture_output=True,
            text=True,
            cwd=folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONNOUSERSITE": "1",
                **environment,
            },
            timeout=LONGEST,
        )


def _settings(store: str) -> dict[str, str]:
    return {name: value for name, value in app_settings(store).items() if name not in NOT_HERE}
