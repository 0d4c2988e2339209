"""The module as a wheel: built, installed alone with one extra, typed, and protecting a handler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from local.services.azurite import Azurite

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "shared/idempotency")

PROTECTED = """
import asyncio
import os
import sys

from azure.data.tables.aio import TableClient

from idempotent_consumer import Consumer, Delivery, Outcome, ResultCodec
from idempotent_consumer.stores.table import TableStore

charged: list[str] = []


async def charge() -> str:
    charged.append("order-1")
    return "receipt-1"


async def main() -> None:
    table = TableClient.from_connection_string(os.environ["STORAGE"], "wheel")
    async with table:
        outcomes: list[Outcome] = []
        for _ in range(2):
            consumer = Consumer("charge_payment", TableStore(table))  # remembers nothing
            handled = await consumer.handle(Delivery(key="order-1"), charge, ResultCodec(str))
            assert handled.result == "receipt-1"
            outcomes.append(handled.outcome)
    print(*outcomes, len(charged), "shared" in sys.modules)


asyncio.run(main())
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints; it must succeed, and sees nothing of this repository."""
    hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - our own words
        [str(word) for word in command],
        cwd=cwd,
        env={**hidden, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: building writes beside its sources."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in BUILT_FROM:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        else:
            shutil.copyfile(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--no-deps", "--wheel-dir", built, source, cwd=built)
    [wheel] = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel with the extra `table`, and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", environment, cwd=environment)
    python = environment / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, f"idempotent-consumer[table] @ {wheel.as_uri()}", cwd=environment)
    return python


def test_the_wheel_holds_the_module_under_a_name_of_its_own_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    sources = {
        f"idempotent_consumer/{path.relative_to(ROOT / 'shared' / 'idempotency').as_posix()}"
        for path in (ROOT / "shared" / "idempotency").rglob("*")
        if path.suffix in (".py", ".typed")
    }
    held = {name for name in names if ".dist-info/" not in name}
    assert held == sources
    assert "idempotent_consumer/py.typed" in held
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.integration
def test_installed_with_one_extra_it_protects_a_handler(
    python: Path, azurite: Azurite, tmp_path: Path
) -> None:
    program = tmp_path / "protected.py"
    program.write_text(PROTECTED)

    told = _run(python, program, cwd=tmp_path, STORAGE=azurite.connection_string)

    assert told.split() == ["processed", "duplicate", "1", "False"]


def test_only_the_extra_that_was_asked_for_is_installed(python: Path, tmp_path: Path) -> None:
    program = (
        "import importlib.util as u\n"
        "print(*(n for n in ('azure.cosmos', 'azure.functions', 'opentelemetry', 'typer')"
        " if u.find_spec(n)))"
    )

    assert _run(python, "-c", program, cwd=tmp_path).split() == []
    _run(python, "-m", "pip", "check", cwd=tmp_path)


def test_what_it_says_of_types_reaches_those_who_install_it(python: Path, tmp_path: Path) -> None:
    program = tmp_path / "protected.py"
    program.write_text(PROTECTED + "\nnumber: int = Consumer('a', 'no store').name\n")
    checker = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python)

    done = subprocess.run(  # noqa: S603 - our own words
        [*checker, program], cwd=tmp_path, capture_output=True, text=True
    )

    assert '"str"; expected "Store"' in done.stdout
    assert 'expression has type "str", variable has type "int"' in done.stdout
    assert "Found 2 errors in 1 file" in done.stdout, done.stdout
