"""The commands on records: each says what it finds, asks, is fenced, and leaves its trace."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.idempotency import Record, Status
from shared.idempotency.records import Step
from shared.idempotency.testing import a_record
from tests.operator.bench import Operator

pytestmark = pytest.mark.integration


@pytest.fixture(params=["table", "cosmos"])
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operator]:
    azurite = request.getfixturevalue("azurite")
    cosmos = request.getfixturevalue("cosmos") if request.param == "cosmos" else None
    return Operator(tmp_path, azurite, cosmos)  # type: ignore[return-value]


def charge(key: str, **fields: Any) -> Record:
    return a_record(key, **fields).replaced(consumer="charge_payment")


def kept(operator: Operator, key: str) -> Record:
    stored = operator.record(key)
    assert stored is not None
    return stored.record


def test_given_records_then_list_shows_those_asked_for(operator: Operator) -> None:
    operator.put(charge("a"), charge("b", status=Status.QUARANTINED), a_record("c"))

    everything = operator("list", "--json")
    narrowed = operator("list", "--consumer", "charge_payment", "--status", "quarantined", "--json")
    table = operator("list")

    assert {r["key"] for r in everything.told["records"]} == {"a", "b", "c"}
    assert [r["key"] for r in narrowed.told["records"]] == ["b"]
    assert narrowed.told["more"] is False
    assert table.code == 0
    for text in ("charge_payment", "quarantined", "in_progress"):
        assert text in table.out
    assert operator("list", "--older-than", "1h", "--json").told["records"] == []
    assert operator("list", "--limit", "1", "--json").told["more"] is True


def test_given_a_key_that_would_play_with_the_terminal_then_it_is_shown_as_escapes(
    operator: Operator,
) -> None:
    operator.put(charge("\x1b[31m[bold]red"))

    listed = operator("list")

    assert "\x1b" not in listed.out
    assert "\\x1b[31m[bold]red" in listed.out


def test_given_nothing_then_the_commands_say_so_each_with_its_code(operator: Operator) -> None:
    assert operator("list", "--json").told == {"records": [], "more": False}
    for command in (["show"], ["complete", "--why", "w", "--yes"], ["release", "--yes"]):
        ended = operator(command[0], "charge_payment", "nothing", *command[1:])
        assert ended.code == 3
        assert "nothing" in ended.err
        assert ended.out == ""


def test_given_a_record_then_show_tells_all_of_it(operator: Operator) -> None:
    step = Step(name="charge", begun_at=1.0, deadline=2.0, done=True, result="1")
    operator.put(charge("a", steps=(step,), result='{"id": 7}', failure_reason="Refused"))

    told = operator("show", "charge_payment", "a", "--json").told

    assert told["result"] == '{"id": 7}'
    assert told["steps"] == [{"name": "charge", "done": True}]
    assert told["status"] == "in_progress"
    assert told["audit"] == []
    assert "charge (done)" in operator("show", "charge_payment", "a").out


def test_given_a_yes_then_the_record_is_changed_and_says_by_whom_and_why(
    operator: Operator,
) -> None:
    before = charge("a", status=Status.UNCERTAIN)
    operator.put(before)

    stopped = operator("quarantine", "charge_payment", "a", "--why", "ask bank", answer="y\n")
    done = operator(
        "complete", "charge_payment", "a", "--result", '{"id": 7}', "--why", "bank: paid", "--yes"
    )
    told = operator("show", "charge_payment", "a", "--json").told

    assert (stopped.code, done.code) == (0, 0)
    assert "the local app" in stopped.err, "it asks, and names the place"
    record = kept(operator, "a")
    assert (record.status, record.result) == (Status.COMPLETED, '{"id": 7}')
    assert record.owner.startswith("operator-")
    assert record.expires_at is not None
    assert record.expires_at - (record.finished_at or 0) == pytest.approx(30 * 86400)
    assert [(e["action"], e["why"], e["was"]) for e in told["audit"]] == [
        ("quarantine", "ask bank", "uncertain"),
        ("complete", "bank: paid", "quarantined"),
    ]
    assert all(e["who"] for e in told["audit"])


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_given_no_yes_then_nothing_is_changed(operator: Operator, answer: str) -> None:
    operator.put(charge("a"))

    ended = operator("quarantine", "charge_payment", "a", "--why", "w", answer=answer)

    assert ended.code == 6
    assert kept(operator, "a").status is Status.IN_PROGRESS


def test_given_no_reason_then_a_change_without_questions_is_refused(operator: Operator) -> None:
    operator.put(charge("a"))

    ended = operator("quarantine", "charge_payment", "a", "--yes")

    assert ended.code == 2
    assert "--why" in ended.err
    assert kept(operator, "a").status is Status.IN_PROGRESS


def test_given_a_quarantined_record_then_release_lets_the_next_delivery_continue(
    operator: Operator,
) -> None:
    steps = (
        Step(name="charge", begun_at=1.0, deadline=2.0, done=True, result="1"),
        Step(name="email", begun_at=1.0, deadline=2.0),
    )
    operator.put(charge("a", status=Status.QUARANTINED, steps=steps))

    ended = operator("release", "charge_payment", "a", "--why", "bank: not paid", "--yes", "--json")

    assert ended.code == 0
    assert ended.told["record"]["status"] == "released"
    assert ended.told["resent"] == []
    assert [step.name for step in kept(operator, "a").steps] == ["charge"]


def test_given_done_work_then_release_is_refused_unless_it_is_said_again(
    operator: Operator,
) -> None:
    operator.put(charge("a", status=Status.COMPLETED))

    refused = operator("release", "charge_payment", "a", "--why", "w", "--yes")
    again = operator("release", "charge_payment", "a", "--why", "w", "--yes", "--again")

    assert refused.code == 4
    assert "--again" in refused.err
    assert again.code == 0
    assert kept(operator, "a").status is Status.RELEASED


def test_given_a_result_that_is_no_json_then_it_is_refused(operator: Operator) -> None:
    operator.put(charge("a"))

    ended = operator("complete", "charge_payment", "a", "--result", "{", "--why", "w", "--yes")

    assert ended.code == 4
    assert "not JSON" in ended.err


def test_given_records_of_several_kinds_then_stats_counts_them(operator: Operator) -> None:
    operator.put(charge("a"), charge("b"), charge("c", status=Status.COMPLETED), a_record("d"))

    told = operator("stats", "--json").told

    counted = {(t["consumer"], t["status"]): t["records"] for t in told["tallies"]}
    assert counted == {
        ("charge_payment", "in_progress"): 2,
        ("charge_payment", "completed"): 1,
        ("contract", "in_progress"): 1,
    }
    assert told["complete"] is True
    assert "charge_payment" in operator("stats").out


def test_given_expired_records_then_purge_deletes_them_where_the_store_does_not(
    operator: Operator, request: pytest.FixtureRequest
) -> None:
    over = {"status": Status.COMPLETED, "finished_at": 160.0, "expires_at": 100.0}
    operator.put(charge("over", **over), charge("kept"))

    declined = operator("purge", answer="n\n")
    ended = operator("purge", "--yes", "--json")

    if "cosmos" in request.node.name:
        assert ended.code == 4
        assert "by itself" in ended.err
        return
    assert declined.code == 6
    assert "delete 1 expired" in declined.err
    assert ended.told == {"deleted": 1, "finished": True}
    assert operator.record("over") is None
    assert operator.record("kept") is not None


def test_given_a_service_that_does_not_answer_then_it_is_said_without_a_trace(
    operator: Operator, tmp_path: Path
) -> None:
    running = json.loads((tmp_path / "local.json").read_text())
    running["storage"] = running["storage"].replace("127.0.0.1:", "127.0.0.1:1")
    running["storage"] = "".join(
        f"{part};" for part in running["storage"].split(";") if part and "Endpoint=" not in part
    ) + "TableEndpoint=http://127.0.0.1:9/devstoreaccount1;"  # fmt: skip
    running["cosmos"] = None
    (tmp_path / "local.json").write_text(json.dumps(running))

    ended = operator("list")

    assert ended.code == 5
    assert "Table Storage" in ended.err
    assert "Traceback" not in ended.err


def test_given_nothing_runs_then_it_is_said_how_to_name_a_place(
    operator: Operator, tmp_path: Path
) -> None:
    (tmp_path / "local.json").unlink()

    ended = operator("list")

    assert ended.code == 2
    assert "make start" in ended.err
    assert "--account" in ended.err
