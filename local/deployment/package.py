"""Build what would be uploaded, install it apart, and run the app in it: ``make package``.

    --to build             where `package` (the files) and what they are run with are made

Nothing of this folder is reachable from there: an import that only works here fails. What Azure adds
to an app, the worker's library, is added beside it.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .infra import ROOT
from .trial import Trial, TrialFailed
from .upload import uploaded_files

TOP = {"blueprints", "bootstrap.py", "function_app.py", "host.json", "requirements.txt", "shared"}
"""What an upload has at its top: all of it, and nothing else."""

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
WORKER = "azure-functions-runtime"


@dataclass(frozen=True)
class Places:
    """Where everything is made.

    package: the files as uploaded. environment: an interpreter with requirements.txt alone.
    worker: the library of Azure's worker. host: a way to this repository's `local`, and to no more.
    """

    package: Path
    environment: Path
    worker: Path
    host: Path

    @classmethod
    def below(cls, folder: Path) -> "Places":
        return cls(*(folder / name for name in ("package", "package-env", "worker", "host")))

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, install, run, report; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.deployment.package", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--to", type=Path, default=ROOT / "build")
    places = Places.below(parser.parse_args(arguments).to.resolve())
    try:
        check(places, say=lambda line: print(line, flush=True))
    except (TrialFailed, OSError) as error:
        print(f"the package is not fit to be deployed: {error}", file=sys.stderr)
        return 1
    return 0


def check(places: Places, say: Callable[[str], None]) -> None:
    """Everything in order; raises TrialFailed at the first thing that is wrong."""
    files = build(places.package)
    say(f"package: {len(files)} files, {_zipped(places.package, files) / 1024:.0f} KiB zipped")
    install(places)
    say(f"installed: {_size(places.environment / 'lib') / 1024**2:.0f} MiB of distributions")
    trial = Trial(places.package, places.python, places.worker, places.host)
    for found in trial.run():
        say(found)


def build(package: Path) -> list[str]:
    """Copy what would be uploaded. Raises TrialFailed when that is not the app, or more than it."""
    files = uploaded_files(ROOT)
    top = {path.partition("/")[0] for path in files}
    if more := top - TOP:
        raise TrialFailed(f"would be uploaded and are not the app: {', '.join(sorted(more))}")
    if less := TOP - top:
        raise TrialFailed(f"would not be uploaded: {', '.join(sorted(less))}")
    shutil.rmtree(package, ignore_errors=True)
    for path in files:
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, package / path)
    return files


def install(places: Places) -> None:
    """A clean environment with the package's requirements, as the remote build installs them.

    Raises TrialFailed with what pip says.
    """
    for folder in (places.environment, places.worker, places.host):
        shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(places.environment))
    python = str(places.python)
    _run(python, *PIP, "-r", str(places.package / "requirements.txt"))
    _run(python, "-m", "pip", "check")
    # Without dependencies: those it has are the app's own, and these must not hide them.
    _run(python, *PIP, "--no-deps", "--target", str(places.worker), _worker_requirement())
    places.host.mkdir()
    (places.host / "local").symlink_to(ROOT / "local", target_is_directory=True)


def _worker_requirement() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    local: list[str] = project["optional-dependencies"]["local"]
    return next(requirement for requirement in local if requirement.startswith(WORKER))


def _run(*command: str) -> None:
    told = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 -- our own words
    if told.returncode:
        raise TrialFailed(f"{' '.join(command)}: {(told.stdout + told.stderr).strip()[-2000:]}")


def _zipped(package: Path, files: Sequence[str]) -> int:
    archive = package.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in files:
            zipped.write(package / path, path)
    return archive.stat().st_size


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
