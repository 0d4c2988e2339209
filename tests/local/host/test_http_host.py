"""The host as a process: HTTP, timers, what it prints, and how it fails."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from local.host.process import ROOT, HostProcess
from tests.local.host.toy_app import ToyApp, eventually

FUNCTIONS = """
@app.route(route="echo/{id:int}", methods=["POST", "PUT"])
async def echo(req: func.HttpRequest) -> func.HttpResponse:
    response = func.HttpResponse(
        req.get_body(), status_code=201, mimetype="application/octet-stream",
        headers={"X-Seen": json.dumps([req.method, dict(req.route_params), dict(req.params), req.url])})
    response.headers.add("Set-Cookie", "a=1; Path=/x; HttpOnly")
    response.headers.add("Set-Cookie", "b=2")
    return response

@app.route(route="fails")
async def fails(req: func.HttpRequest) -> func.HttpResponse:
    raise ValueError("a secret of the app's")

@app.route(route="slow")
def slow(req: func.HttpRequest) -> func.HttpResponse:
    effect("slow begun")
    time.sleep(0.7)
    effect("slow ended")
    return func.HttpResponse("late but whole")

@app.service_bus_queue_trigger(arg_name="message", queue_name="orders", connection="Bus")
async def unconnected(message: func.ServiceBusMessage) -> None: ...

@app.event_hub_message_trigger(arg_name="event", event_hub_name="hub", connection="Hub")
async def unknown(event: func.EventHubEvent) -> None: ...

@app.timer_trigger(arg_name="timer", schedule="%NIGHTLY%", run_on_startup=True)
async def nightly(timer: func.TimerRequest) -> None:
    effect("nightly")
    logging.getLogger("shop").info("the app's own words")
"""

NIGHTLY = {"NIGHTLY": "0 0 2 1 1 *", "Bus": None}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> ToyApp:
    return ToyApp(tmp_path_factory.mktemp("app"), FUNCTIONS)


@pytest.fixture(scope="module")
def host(app: ToyApp) -> Iterator[HostProcess]:
    with HostProcess(app.folder, environment=NIGHTLY) as host:
        yield host


def test_functions_are_listed_as_func_does(host: HostProcess) -> None:
    assert f"\techo: [POST,PUT] {host.base_url}/api/echo/{{id:int}}\n" in host.output
    assert "\tnightly: timerTrigger\n" in host.output


def test_a_missing_connection_is_named_and_the_other_functions_run(host: HostProcess) -> None:
    assert "function 'unconnected' cannot start: connection string 'Bus' is missing" in host.output
    assert httpx.post(f"{host.base_url}/api/echo/1").status_code == 201


def test_a_trigger_that_is_not_served_here_is_named(host: HostProcess) -> None:
    assert "'unknown': eventHubTrigger is not pumped locally" in host.output


@pytest.mark.parametrize("size", [0, 1, 5 * 1024 * 1024])
def test_a_request_reaches_the_function_whole_and_its_answer_comes_back(
    host: HostProcess, size: int
) -> None:
    url = f"{host.base_url}/api/echo/7?a=1&a=2&b=%C3%BC"
    answer = httpx.put(url, content=b"\xff" * size)

    assert answer.status_code == 201
    assert answer.content == b"\xff" * size
    seen = json.loads(answer.headers["X-Seen"])
    assert seen == ["PUT", {"id": "7"}, {"a": "1,2", "b": "ü"}, url]
    assert answer.headers.get_list("Set-Cookie") == ["a=1; HttpOnly; Path=/x", "b=2; Path=/"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "nonsense"])
def test_a_body_is_handed_on_as_it_came_whatever_it_says_it_is_packed_with(
    host: HostProcess, encoding: str
) -> None:
    """Azure's host unpacks nothing either; what the function makes of it is its own business."""
    url = f"{host.base_url}/api/echo/7"
    answer = httpx.post(url, content=b'{"not": "packed"}', headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.content) == (201, b'{"not": "packed"}')


def test_what_no_function_serves_is_not_found(host: HostProcess) -> None:
    assert httpx.post(f"{host.base_url}/api/echo/x").status_code == 404
    assert httpx.get(f"{host.base_url}/api/echo/1").status_code == 404


def test_an_exception_is_500_for_the_client_and_its_trace_is_in_the_log(host: HostProcess) -> None:
    answer = httpx.get(f"{host.base_url}/api/fails")

    assert answer.status_code == 500
    assert answer.content == b""
    assert "ValueError: a secret of the app's" in host.output


def test_the_admin_endpoints_tell_state_and_functions(host: HostProcess) -> None:
    status = httpx.get(f"{host.base_url}/admin/host/status").json()
    functions = httpx.get(f"{host.base_url}/admin/functions").json()

    assert status["state"] == "Running"
    urls = {function["name"]: function["invoke_url_template"] for function in functions}
    assert urls["echo"] == f"{host.base_url}/api/echo/{{id:int}}"
    assert urls["nightly"] is None


def test_a_timer_runs_at_startup_and_when_asked_for(app: ToyApp, host: HostProcess) -> None:
    assert len(app.effects("nightly")) == 1

    answer = httpx.post(f"{host.base_url}/admin/functions/nightly", json={"input": ""})

    assert answer.status_code == 202
    eventually(lambda: len(app.effects("nightly")) == 2)
    assert "the app's own words" in host.output
    assert httpx.post(f"{host.base_url}/admin/functions/echo", json={}).status_code == 400
    assert httpx.post(f"{host.base_url}/admin/functions/nobody", json={}).status_code == 404


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_lets_a_running_request_finish_and_exits_with_zero(
    app: ToyApp, asked: signal.Signals
) -> None:
    before = len(app.effects("slow begun"))
    with HostProcess(app.folder, environment=NIGHTLY) as host:
        answers: list[httpx.Response] = []
        url = f"{host.base_url}/api/slow"
        client = threading.Thread(target=lambda: answers.append(httpx.get(url)))
        client.start()
        eventually(lambda: len(app.effects("slow begun")) > before)

        host.signal(asked)
        client.join(timeout=10)

        assert [answer.text for answer in answers] == ["late but whole"]
        eventually(lambda: host.exit_code is not None)
        assert host.exit_code == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_work_that_does_not_finish_in_time_is_given_up(tmp_path: Path) -> None:
    app = ToyApp(
        tmp_path,
        """
        @app.route(route="stuck")
        def stuck(req: func.HttpRequest) -> func.HttpResponse:
            effect("stuck")
            time.sleep(60)
        """,
    )
    with HostProcess(app.folder, grace=0.2) as host:
        url = f"{host.base_url}/api/stuck"
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(url, timeout=0.3)
        eventually(lambda: app.effects("stuck"))

        assert host.stop() == 0

    assert "1 invocation(s) did not finish in time" in host.output


async def test_it_can_be_held_by_asynchronous_code(tmp_path: Path) -> None:
    app = ToyApp(
        tmp_path,
        """
        @app.route(route="hello")
        def hello(req: func.HttpRequest) -> str:
            return "hello"
        """,
        http={"routePrefix": ""},
    )
    async with HostProcess(app.folder) as host, httpx.AsyncClient() as client:
        answer = await client.get(f"{host.base_url}/hello")
        assert (answer.status_code, answer.text) == (200, "hello")
        host.kill()
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{host.base_url}/hello")


def run(app: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - this repository's own program
        [sys.executable, "-m", "local.host", "--app", str(app), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_an_app_that_does_not_load_ends_it_with_the_worker_s_error(tmp_path: Path) -> None:
    app = ToyApp(tmp_path, "import no_such_module")
    ended = run(app.folder, "--port", "0")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    last = ended.stderr.rstrip().rpartition("\n")[2]  # where one looks first
    assert last.startswith(
        "The app does not load: ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_a_port_in_use_is_named_with_the_way_out(app: ToyApp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run(app.folder, "--port", str(port))
    assert ended.returncode == 1
    assert f"Port {port} is unavailable" in ended.stdout
    assert "--port" in ended.stdout


def test_settings_come_from_the_file_unless_the_environment_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ToyApp(
        tmp_path,
        """
        @app.timer_trigger(arg_name="timer", schedule="0 0 2 1 1 *", run_on_startup=True)
        async def show(timer: func.TimerRequest) -> None:
            effect("settings", os.environ["FROM_FILE"], os.environ["FROM_BOTH"],
                   os.environ["FUNCTIONS_WORKER_RUNTIME"])
        """,
    )
    values = {"FROM_FILE": "file", "FROM_BOTH": "file"}
    (app.folder / "local.settings.json").write_text(json.dumps({"Values": values}))
    monkeypatch.setenv("FROM_BOTH", "environment")

    with HostProcess(app.folder, port=None) as host:
        assert host.stop() == 0

    assert app.effects("settings") == [["file", "environment", "python"]]
