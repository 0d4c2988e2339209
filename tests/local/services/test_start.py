"""`make start`: everything comes up, is told, and goes again; what is wrong is named.

The host is a stub of Core Tools on PATH that answers HTTP with its environment: what is tested
here is the starting, not the app.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local import run_file, send
from local.introduction import introduction
from local.run_file import Running
from local.services.azurite import Azurite
from local.services.processes import LOOPBACK, ServiceError, free_port

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
START_SECONDS = 20.0

FUNC = f"""#!{sys.executable}
import http.server, json, os, sys
class Environment(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(os.environ)).encode())
    def log_message(self, *ignored):
        pass
if os.environ.get("FUNC_FAILS"):
    sys.exit("func: no such app")
port = sys.argv[sys.argv.index("--port") + 1]
http.server.HTTPServer(("127.0.0.1", int(port)), Environment).serve_forever()
"""


@dataclass
class Start:
    """One `python -m local.start`, as at a terminal of its own."""

    folder: Path
    port: int
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None

    @property
    def app(self) -> Path:
        return self.folder / "app"

    @property
    def run_file(self) -> Path:
        return self.folder / "run" / "local.json"

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        options = ["--app", str(self.app), "--run-file", str(self.run_file), *arguments]
        command = [sys.executable, "-m", "local.start", "--port", str(self.port), *options]
        self.process = subprocess.Popen(  # noqa: S603  this repository's own
            command,
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def up(self, *arguments: str) -> Running:
        process = self.run("--host", "func", *arguments)
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(ServiceError):
                return run_file.read(self.run_file)
            time.sleep(0.05)
        process.kill()
        pytest.fail(f"did not come up: {process.communicate()[0]}")

    def ended(self) -> tuple[int, str]:
        """Exit code and everything it said."""
        assert self.process
        output, _ = self.process.communicate(timeout=20)
        return self.process.returncode, output

    def interrupt(self) -> None:
        """What the terminal does on Ctrl-C: a signal to the whole foreground group."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGINT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "app").mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "func").write_text(FUNC)
    (programs / "func").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "STORE"}
    begun = Start(tmp_path, free_port(), {**environment, "PATH": path})
    yield begun
    if begun.process and begun.process.poll() is None:
        begun.process.terminate()
        try:
            begun.process.communicate(timeout=20)
        finally:
            begun.process.kill()


def answered_environment(running: Running) -> dict[str, str]:
    with urllib.request.urlopen(running.url, timeout=5) as answer:  # noqa: S310  loopback
        environment: dict[str, str] = json.load(answer)
        return environment


def running_processes(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_given_azurite_only_when_interrupted_then_all_that_was_started_is_gone_and_no_more(
    start: Start, azurite: Azurite
) -> None:
    running = start.up("--no-service-bus")
    environment = answered_environment(running)
    assert environment["ServiceBusConnection"] == ""
    assert (environment["PAYMENT_PROVIDER_URL"], running.payments) == ("", None)
    assert environment["IDEMPOTENCY_STORE"] == "table"
    assert environment["AzureWebJobsStorage"] in ("UseDevelopmentStorage=true", running.storage)
    assert environment["APPLICATIONINSIGHTS_CONNECTION_STRING"].startswith("InstrumentationKey=")
    pids = list(running.processes.values())
    assert running_processes(pids) == pids
    assert set(running.processes) == {"start", "azurite", "func"}

    start.interrupt()

    code, output = start.ended()
    assert code == 0
    assert introduction(running) in output
    assert output.endswith("Stopped everything.\n")
    assert running_processes(pids) == []
    assert not start.run_file.exists()
    assert azurite.process.running


def test_given_cosmos_and_service_bus_then_the_host_gets_all_it_needs_to_reach_them(
    start: Start,
) -> None:
    running = start.up("--store", "cosmos")
    environment = answered_environment(running)
    assert environment["IDEMPOTENCY_STORE"] == "cosmos"
    assert environment["COSMOS_CONNECTION"] == running.cosmos
    assert running.cosmos
    assert running.cosmos.startswith("AccountEndpoint=https://127.0.0.1:")
    assert environment["AzureWebJobsStorage"] == running.storage
    assert running.service_bus
    assert environment["ServiceBusConnection"] == running.service_bus
    assert "UseDevelopmentEmulator=true" in running.service_bus
    assert "orders" in running.service_bus_queues
    assert environment["PAYMENT_PROVIDER_URL"] == running.payments
    with urllib.request.urlopen(f"{running.payments}/ledger", timeout=5) as ledger:  # noqa: S310  loopback
        assert ledger.status == 200


def test_given_a_sent_order_then_it_is_in_the_queue_of_the_running_app(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from azure.storage.queue import QueueClient

    running = start.up("--no-service-bus")
    order = tmp_path / "order.json"
    order.write_text('{"order_id": "order-1"}')
    assert send.main([str(order), "--run-file", str(start.run_file), "--times", "2"]) == 0
    assert "sent 2 x 23 bytes to 'orders'" in capsys.readouterr().out
    with QueueClient.from_connection_string(running.storage, "orders") as queue:
        bodies = [message.content for message in queue.receive_messages()]
    assert bodies == ['{"order_id": "order-1"}'] * 2


def test_given_one_part_that_dies_then_it_is_named_and_the_others_are_stopped(
    start: Start,
) -> None:
    running = start.up("--no-service-bus")
    os.kill(running.processes["azurite"], signal.SIGKILL)
    code, output = start.ended()
    assert code == 1
    assert "azurite: ended by itself with exit code -9" in output
    assert running_processes(list(running.processes.values())) == []


def test_given_a_host_that_does_not_start_then_it_is_named_and_nothing_is_left(
    start: Start,
) -> None:
    start.environment["FUNC_FAILS"] = "1"
    start.run("--no-service-bus", "--host", "func")
    code, output = start.ended()
    assert code == 1
    assert "func: no such app" in output
    assert "func: ended with exit code 1 before it answered" in output
    assert "what it said stands above" in output
    assert not start.run_file.exists()


def test_given_a_port_in_use_then_it_is_named_and_nothing_starts(start: Start) -> None:
    with socket.create_server((LOOPBACK, start.port)):
        start.run("--no-service-bus")
        code, output = start.ended()
    assert code == 1
    assert f"port {start.port} is in use: choose another one with PORT=" in output


def test_given_no_core_tools_when_they_are_asked_for_then_the_message_says_what_to_do(
    start: Start,
) -> None:
    start.environment["PATH"] = "/nowhere"
    start.run("--host", "func")
    code, output = start.ended()
    assert code == 1
    assert "func: Azure Functions Core Tools are not on PATH" in output


def test_given_it_runs_already_then_the_second_says_so_and_the_first_runs_on(
    start: Start,
) -> None:
    running = start.up("--no-service-bus")
    second = Start(start.folder, free_port(), start.environment)
    second.run("--no-service-bus")
    code, output = second.ended()
    assert code == 1
    assert "the app is running already" in output
    assert run_file.read(start.run_file) == running


def test_given_no_settings_then_the_sample_is_copied_and_a_persons_own_are_left(
    start: Start,
) -> None:
    sample, settings = (start.app / f"local.settings.{kind}" for kind in ("sample.json", "json"))
    sample.write_text('{"Values": {"from": "sample"}}')
    start.environment["FUNC_FAILS"] = "1"
    for own in (None, '{"Values": {"from": "person"}}'):
        if own:
            settings.write_text(own)
        start.run("--no-service-bus", "--host", "func")
        start.ended()
        assert settings.read_text() == (own or sample.read_text())


def test_given_an_unknown_store_in_the_environment_then_it_is_named(start: Start) -> None:
    start.environment["STORE"] = "sql"
    start.run()
    code, output = start.ended()
    assert code == 2
    assert "STORE: 'sql' is none of table, cosmos" in output
