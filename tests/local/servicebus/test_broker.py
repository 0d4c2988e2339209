"""The life of a broker: ports, threads, the command line, hostile bytes."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.servicebus import Broker, Counts, EntityNotFound
from tests.local.servicebus.sdk_steps import ENTITIES

ROOT = Path(__file__).parents[3]


def threads() -> int:
    return sum(thread.name == "servicebus" for thread in threading.enumerate())


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_broker_takes_a_free_port_and_gives_it_back() -> None:
    before = threads()
    with Broker(ENTITIES) as broker:
        assert accepts(broker.port)
        assert f"sb://localhost:{broker.port};" in broker.connection_string
        assert "UseDevelopmentEmulator=true;" in broker.connection_string
        assert threads() == before + 1
    assert not accepts(broker.port)
    assert threads() == before


def test_a_taken_port_is_an_error_and_leaves_nothing_behind() -> None:
    with Broker(ENTITIES) as first:
        second = Broker(ENTITIES, port=first.port)
        with pytest.raises(OSError, match="in use"):
            second.start()
        second.stop()
        assert accepts(first.port)


def test_a_stopped_broker_still_shows_its_state_and_starts_again() -> None:
    broker = Broker(ENTITIES)
    assert broker.counts("orders") == Counts()
    with broker:
        broker.clock.advance(1)
    broker.stop()
    broker.clock.advance(1)
    assert broker.messages("orders") == ()
    with broker:
        assert accepts(broker.port)
    with pytest.raises(EntityNotFound):
        broker.counts("nope")


def test_many_threads_may_look_and_disturb_at_once() -> None:
    failures: list[BaseException] = []

    def disturb() -> None:
        try:
            for _ in range(20):
                broker.counts("orders")
                broker.clock.advance(0.001)
                broker.drop_connections()
                broker.faults.hold_settlement("orders").release()
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    with Broker(ENTITIES) as broker:
        disturbers = [threading.Thread(target=disturb) for _ in range(5)]
        for each in disturbers:
            each.start()
        broker.restart(downtime=0.01)
        for each in disturbers:
            each.join()
        assert accepts(broker.port)
    assert failures == []


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x01\x00\x00" + b"\xff" * 64,
        b"AMQP\x00\x01\x00\x00\x00\x00\x00\x10\x02\x00\x00\x00\x00\x53\x10\xc0\x03\x01\xa1\x00",
        b"",
    ],
)
def test_noise_on_the_port_harms_nobody(noise: bytes) -> None:
    with Broker(ENTITIES) as broker:
        with socket.create_connection(("127.0.0.1", broker.port)) as visitor:
            visitor.sendall(noise)
            visitor.shutdown(socket.SHUT_WR)
            visitor.settimeout(5)
            while visitor.recv(4096):
                pass
        assert broker.counts("orders") == Counts()
        assert accepts(broker.port)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def run(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "local.servicebus", "--entities", "local/entities.json"]
    return subprocess.Popen(  # noqa: S603 - our own command
        [*command, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_prints_how_to_connect_and_ends_with_ctrl_c() -> None:
    with run("--port", "0") as command:
        assert command.stdout is not None
        first = command.stdout.readline()
        found = re.search(r"localhost:(\d+)", first)
        assert found is not None
        assert accepts(int(found[1]))
        os.kill(command.pid, signal.SIGINT)
        rest = command.stdout.read()
    assert "orders\n" in rest
    assert "order-events/subscriptions/email\n" in rest
    assert command.returncode == 0


def test_the_command_names_the_port_that_is_taken(port: int) -> None:
    with run("--port", str(port)) as command:
        _, errors = command.communicate(timeout=10)
    assert command.returncode == 1
    assert f"127.0.0.1:{port}" in errors
    assert "Traceback" not in errors
