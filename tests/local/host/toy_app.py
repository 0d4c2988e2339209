"""Toy apps: each test writes the functions it needs into a folder of its own."""

import json
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PREAMBLE = """
import asyncio, json, logging, os, pathlib, threading, time
import azure.functions as func
from azurefunctions.extensions.bindings.servicebus import ServiceBusMessageActions

app = func.FunctionApp()
EFFECTS = pathlib.Path(__file__).with_name("effects.log")

def effect(*what):
    with EFFECTS.open("a") as log:
        log.write(json.dumps(what) + "\\n")
"""


class ToyApp:
    """An app on disk, and the effects its functions have written down.

    functions: their source; they call `effect(name, ...)` to be heard.
    extensions: those of host.json.
    """

    def __init__(self, folder: Path, functions: str, **extensions: Any) -> None:
        self.folder = folder
        (folder / "function_app.py").write_text(PREAMBLE + textwrap.dedent(functions))
        settings = {"version": "2.0", "extensions": extensions}
        (folder / "host.json").write_text(json.dumps(settings))

    def effects(self, name: str) -> list[list[Any]]:
        """The effects whose first value is that name, without it, in order."""
        path = self.folder / "effects.log"
        lines = path.read_text().splitlines() if path.exists() else []
        effects = [json.loads(line) for line in lines]
        return [effect[1:] for effect in effects if effect[0] == name]


def eventually[T](look: Callable[[], T | None], *, within: float = 10.0) -> T:
    """Wait until `look` gives something true, and give it; fails when time is up."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s, last seen: {found!r}")
        time.sleep(0.02)
    return found
