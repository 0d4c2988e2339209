"""`make package` passes an app that would run when deployed, and names what is wrong with any other."""

import sys
from pathlib import Path

import pytest

from local.deployment import package
from local.deployment.infra import ROOT
from local.deployment.package import Places
from local.deployment.trial import Trial, TrialFailed
from local.deployment.upload import uploaded_files

HEALTH = """
import azure.functions as func
app = func.FunctionApp()

@app.function_name("health")
@app.route(route="health", trigger_arg_name="request", methods=["GET"])
async def health(request: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse({answer!r}, status_code={status})
"""


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A trial of an empty package with this environment instead of one of its own."""
    places = Places.below(tmp_path)
    for folder in (places.package, places.worker, places.host):
        folder.mkdir()
    (places.host / "local").symlink_to(ROOT / "local", target_is_directory=True)
    return Trial(places.package, Path(sys.executable), places.worker, places.host)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_app_as_uploaded_runs_with_its_requirements_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Needs a package index."""
    assert package.main(["--to", str(tmp_path)]) == 0, capsys.readouterr().err

    told = capsys.readouterr().out
    for line in ("package: ", "installed: ", "imports: ", "shadows: ", "cold start: "):
        assert line in told
    for store in ("table", "cosmos"):
        assert f"loads with {store}: " in told
    assert "process_order" in told


def test_the_app_as_uploaded_loads_and_answers_from_its_own_folder(trial: Trial) -> None:
    package.build(trial.package)

    trial.imports_everything()
    trial.is_not_shadowed()
    assert {"health", "process_order", "submit_order"} <= set(trial.loads("table"))


def test_the_app_as_uploaded_names_the_setting_that_is_missing(trial: Trial) -> None:
    package.build(trial.package)

    told = trial.complains_without("AzureWebJobsStorage__accountName")
    assert "AzureWebJobsStorage" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "source",
    [
        "import no_such_distribution",
        "def late() -> None:\n    from no_such_distribution.aio import Client",
        "from tests.conftest import broker",
        "import local.send",
    ],
)
def test_an_import_that_only_works_here_is_found(trial: Trial, source: str) -> None:
    (trial.package / "late.py").write_text(source)

    with pytest.raises(TrialFailed, match="cannot be imported"):
        trial.imports_everything()


def test_a_module_that_an_installed_distribution_hides_is_found(trial: Trial) -> None:
    (trial.package / "rich").mkdir()
    (trial.package / "rich" / "__init__.py").touch()

    with pytest.raises(TrialFailed, match="rich: rich"):
        trial.is_not_shadowed()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('broken at start')", "broken at start"),
        (HEALTH.format(answer="{}", status=500), "500"),
        (
            HEALTH.format(
                answer='{"status": "ok", "store": "cosmos", "service_bus": true}', status=200
            ),
            "cosmos",
        ),
    ],
)
def test_an_app_that_does_not_load_or_is_not_well_is_found(
    trial: Trial, source: str, told: str
) -> None:
    (trial.package / "function_app.py").write_text(source)
    (trial.package / "host.json").write_text('{"version": "2.0"}')

    with pytest.raises(TrialFailed, match=told):
        trial.loads("table")


def test_an_app_that_does_not_miss_a_setting_is_found(trial: Trial) -> None:
    (trial.package / "function_app.py").write_text(HEALTH.format(answer="{}", status=200))
    (trial.package / "host.json").write_text('{"version": "2.0"}')

    with pytest.raises(TrialFailed, match="without AzureWebJobsStorage__accountName"):
        trial.complains_without("AzureWebJobsStorage__accountName")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["tests/test_a.py"], "are not the app: tests"),
        (["notes.md"], "are not the app: notes.md"),
        ([], "would not be uploaded: host.json"),
    ],
)
def test_a_file_too_many_or_too_few_is_found_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], told: str
) -> None:
    uploaded = [path for path in uploaded_files(ROOT) if files or path != "host.json"]
    monkeypatch.setattr(package, "uploaded_files", lambda _root: uploaded + files)

    with pytest.raises(TrialFailed, match=told):
        package.build(tmp_path / "package")
