"""docs/five-minutes.md, followed to the letter in an app that has nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.host.invoker import Invoker
from local.services.azurite import Azurite
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "five-minutes.md"
BEFORE, AFTER = (each.text for each in blocks(PAGE, "python") if each.words == ("function_app.py",))
MAILS = """
from pathlib import Path

def send_welcome(customer: str) -> None:
    with Path(__file__).with_name("outbox.txt").open("a") as outbox:
        outbox.write(customer + "\\n")
"""

pytestmark = pytest.mark.integration


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The reader's app as it was."""
    (tmp_path / "mails.py").write_text(MAILS)
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    (tmp_path / "requirements.txt").write_text("azure-functions>=2.1,<3\n")
    (tmp_path / "function_app.py").write_text(BEFORE)
    return tmp_path


def _follow(app: Path) -> None:
    """The commands, then the new code; what pip would install is here already."""
    here = str(Path(sys.executable).parent)
    for block in blocks(PAGE, "sh"):
        subprocess.run(  # noqa: S603 - the page's own words
            ["bash", "-euo", "pipefail", "-c", block.text],  # noqa: S607
            cwd=app,
            env={
                **os.environ,
                "CLONE": str(ROOT),
                "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
                "PIP_DRY_RUN": "1",
                "PIP_QUIET": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            },
            check=True,
        )
    (app / "function_app.py").write_text(AFTER)


def _mails(app: Path) -> list[str]:
    outbox = app / "outbox.txt"
    return outbox.read_text().split() if outbox.exists() else []


def _deliver(app: Path, azurite: Azurite, *messages: dict[str, Any]) -> list[list[Any]]:
    """How the messages, one after the other in a process of its own, are settled."""
    environment = {
        "AzureWebJobsStorage": azurite.connection_string,
        "ServiceBusConnection": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=a",
    }
    with Invoker(app, environment) as invoker:
        answers = [invoker("welcome_customer", **message) for message in messages]
    assert all(answer["succeeded"] for answer in answers), answers
    return [answer["settlements"] for answer in answers]


def test_before_the_page_two_deliveries_are_two_mails(app: Path, azurite: Azurite) -> None:
    message = {"body": '{"mail": "ada@example.com"}', "message_id": "customer-1"}

    _deliver(app, azurite, message, message)

    assert _mails(app) == ["ada@example.com"] * 2


def test_after_it_they_are_one_also_in_another_process(app: Path, azurite: Azurite) -> None:
    message = {"body": '{"mail": "ada@example.com"}', "message_id": "customer-2"}
    _follow(app)

    settled = _deliver(app, azurite, message, message)
    settled += _deliver(app, azurite, message)

    assert settled == [[["complete"]]] * 3
    assert _mails(app) == ["ada@example.com"]


def test_what_the_page_promises_of_other_messages_holds(app: Path, azurite: Azurite) -> None:
    _follow(app)

    _, other, without, no_json = _deliver(
        app,
        azurite,
        {"body": '{"mail": "ada@example.com"}', "message_id": "customer-3"},
        {"body": '{"mail": "eve@example.com"}', "message_id": "customer-3"},
        {"body": '{"mail": "bob@example.com"}', "message_id": None},
        {"body": "bob@example.com", "message_id": "customer-4"},
    )

    assert [each[:2] for each in other] == [["deadletter", "PayloadMismatch"]]
    assert [each[:2] for each in without] == [["deadletter", "MissingKey"]]
    assert [each[:2] for each in no_json] == [["deadletter", "MalformedJson"]]
    assert _mails(app) == ["ada@example.com"]


def test_what_the_page_has_installed_is_what_the_module_is_tested_with() -> None:
    page = {
        line for block in blocks(PAGE, "sh") for line in re.findall(r"^\S+>=\S+$", block.text, re.M)
    }

    assert len(page) == 4
    assert page <= set((ROOT / "requirements.txt").read_text().splitlines())


def test_the_function_itself_is_left_as_it_was() -> None:
    assert AFTER.endswith(BEFORE[BEFORE.index("def welcome_customer") :])
