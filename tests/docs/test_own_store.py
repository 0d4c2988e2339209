"""docs/own-store.md: its store keeps the contract, and the contract finds what the page warns of."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

STORE, TEST = blocks(ROOT / "docs" / "own-store.md", "python")


def contract(folder: Path, store: str) -> tuple[int, str]:
    """The page's own files, run in a folder of their own: exit code and output."""
    (folder / STORE.words[0]).write_text(store)
    (folder / TEST.words[0]).write_text(TEST.text)
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


def test_the_store_of_the_page_keeps_the_contract(tmp_path: Path) -> None:
    code, said = contract(tmp_path, STORE.text)
    assert code == 0, said
    assert " passed" in said


@pytest.mark.parametrize(
    ("right", "wrong", "finds"),
    [
        (" AND etag = ?", " AND ? <> ''", "stale_etag"),
        ("new = uuid.uuid4().hex", "new = etag", "same_content_still_changes_the_etag"),
        ("ON CONFLICT DO NOTHING", "ON CONFLICT DO UPDATE SET etag = excluded.etag", "fifty"),
        ("return storage_id(consumer), storage_id(key)", "return '', key.strip()", "hostile_keys"),
        ("{NOW} - written_at", "0", "age_is_the_time_since"),
    ],
)
def test_what_the_page_warns_of_is_found(
    tmp_path: Path, right: str, wrong: str, finds: str
) -> None:
    assert right in STORE.text
    code, said = contract(tmp_path, STORE.text.replace(right, wrong))
    assert code == 1, said
    assert finds in said
