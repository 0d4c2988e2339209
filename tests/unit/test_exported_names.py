"""What the package exports, and what importing it costs."""

import re
import subprocess
import sys
from pathlib import Path

import shared.idempotency as package


def test_the_exported_names_are_sorted_and_there() -> None:
    assert list(package.__all__) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_importing_the_core_imports_no_azure_sdk() -> None:
    """An app pays for the store that it uses, and the core is free of azure.functions."""
    program = (
        "import sys, shared.idempotency, shared.idempotency.stores.memory, "
        "shared.idempotency.stores.memory_inbox, shared.idempotency.stores.observed\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('azure', 'aiohttp', 'opentelemetry', 'pytest')))"
    )
    done = subprocess.run(  # noqa: S603 - our own lines, by our own interpreter
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_only_the_adapters_know_azure_functions() -> None:
    """Not even lazily, nor for type checkers: the core serves any host."""
    core = Path(package.__file__).parent
    knowing = {
        path.relative_to(core).parts[0]
        for path in core.rglob("*.py")
        if re.search(r"^\s*(from|import) azure\.functions\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert knowing == {"triggers"}
