"""`python -m local.payments`, as a person starts and ends it."""

import os
import signal
import sys

import httpx

from local.payments import PaymentProvider
from local.services.processes import ChildProcess
from tests.local.payments.calls import PATIENCE, order

COMMAND = [sys.executable, "-m", "local.payments"]


def test_given_the_program_then_it_prints_its_url_charges_and_ends_with_ctrl_c() -> None:
    with ChildProcess("payments", [*COMMAND, "--port", "0"]) as program:
        url = program.wait_for_output(r"^(http://\S+:\d+)\n", within=10)[1]
        charged = httpx.post(f"{url}/v1/charges", json=order(), trust_env=False)
        assert charged.status_code == 201
        assert httpx.get(f"{url}/ledger", trust_env=False).json()["charged"] == 1
        os.kill(program.pid, signal.SIGINT)
        program.wait_until(lambda: program.exit_code is not None, within=PATIENCE, what="it ended")
        assert program.exit_code == 0


def test_given_a_taken_port_then_it_says_so_and_ends(provider: PaymentProvider) -> None:
    with ChildProcess("payments", [*COMMAND, "--port", str(provider.port)]) as program:
        program.wait_for_output(r"cannot listen on 127\.0\.0\.1:\d+: .*in use", within=10)
        program.wait_until(lambda: program.exit_code is not None, within=PATIENCE, what="it ended")
        assert program.exit_code == 1
