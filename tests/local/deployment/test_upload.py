"""What is uploaded is the app, and nothing but the app, whichever tool uploads it."""

import subprocess
from pathlib import Path

import pathspec
import pytest

from local.deployment.infra import ROOT
from local.deployment.upload import NEVER_FILES, FuncIgnore, uploaded_files

THE_APP = {
    "blueprints",
    "bootstrap.py",
    "function_app.py",
    "host.json",
    "requirements.txt",
    "shared",
}


def test_the_app_is_uploaded_and_nothing_else() -> None:
    files = uploaded_files(ROOT)

    assert {path.partition("/")[0] for path in files} == THE_APP
    assert {Path(path).suffix for path in files if "/" in path} == {".py"}


def test_every_module_of_the_app_that_is_in_the_repository_is_uploaded() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    app = {path for path in listed if path.partition("/")[0] in THE_APP}
    at_home = {
        "shared/idempotency/__main__.py",
        "shared/idempotency/rehearsal.py",
        "shared/idempotency/staging.py",
    }
    folders_at_home = tuple(
        f"shared/idempotency/{name}/" for name in ("cli", "exploration", "testing")
    )

    wanted = {
        path
        for path in app - at_home
        if not path.startswith(folders_at_home) and (ROOT / path).exists()
    }
    assert wanted
    assert wanted <= set(uploaded_files(ROOT))


def test_azd_reads_the_same_file_to_the_same_end() -> None:
    """azd takes .funcignore for a .gitignore; func does not. They must not differ over our lines."""
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text().splitlines())

    by_azd = []
    for folder, folders, files in ROOT.walk():
        here = folder.relative_to(ROOT)
        folders[:] = [
            name
            for name in folders
            if name != ".git" and not ignored.match_file(f"{(here / name).as_posix()}/")
        ]
        by_azd += [
            path
            for path in ((here / name).as_posix() for name in files)
            if not ignored.match_file(path) and Path(path).name not in NEVER_FILES
        ]
    assert sorted(by_azd) == uploaded_files(ROOT)


@pytest.mark.parametrize(
    ("line", "path", "denied"),
    [
        ("tests", "tests/unit/test_a.py", True),
        ("tests", "tests", True),
        ("test", "tests/test_a.py", False),
        ("tests", "shared/tests/test_a.py", False),
        ("/tests", "tests/test_a.py", True),
        ("local", "local.settings.json", True),
        ("local", "local-notes.md", True),
        ("local", "locally.py", False),
        ("local", "local_notes.py", False),
        ("__pycache__", "__pycache__/a.pyc", True),
        ("__pycache__", "shared/__pycache__/a.pyc", False),
        ("**/__pycache__", "shared/deep/__pycache__/a.pyc", True),
        ("*.egg-info", "app.egg-info/PKG-INFO", True),
        (".git*", ".github/workflows/test.yml", True),
        ("a/*.txt", "a/b.txt", True),
        ("a/*.txt", "a/b/c.txt", False),
        ("# tests", "tests/test_a.py", False),
        ("tests\n!tests/data", "tests/data/order.json", False),
        ("tests\n!/tests/data", "tests/other.json", True),
        ("a.b", "aXb/c", False),
        ("", "function_app.py", False),
    ],
)
def test_a_line_denies_as_core_tools_take_it(line: str, path: str, denied: bool) -> None:
    assert FuncIgnore(line).denies(path) is denied


def test_a_folder_is_looked_into_where_something_in_it_may_be_taken_back(tmp_path: Path) -> None:
    for name in ("tests/data/order.json", "tests/test_a.py", "app.py", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".funcignore").write_text("tests\n!tests/data\n")

    assert uploaded_files(tmp_path) == ["app.py", "tests/data/order.json"]


def test_secrets_on_this_machine_are_never_uploaded(tmp_path: Path) -> None:
    for name in ("local.settings.json", "function_app.py", ".vscode/launch.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert uploaded_files(tmp_path) == ["function_app.py"]
