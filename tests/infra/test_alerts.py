"""Alerts and the workbook ask for what the code emits, under its names, and each has its runbook."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from local.deployment import infra
from local.deployment.bicep import BicepFile, Resource
from local.deployment.infra import INFRA, ROOT
from shared.idempotency import Cause, Delivery, Handled, Outcome, Status
from shared.idempotency import events as e
from shared.idempotency.telemetry import Metrics

QUERIES = sorted((INFRA / "queries").glob("*.kql"))
RULES = "Microsoft.Insights/scheduledQueryRules"

EVENTS: list[e.Event] = [
    *(
        e.DeliveryHandled(
            consumer="c",
            delivery=Delivery(key="k", trigger="t"),
            handled=Handled(outcome=outcome, cause=cause, age=1.0),
            duration=1.0,
        )
        for outcome in Outcome
        for cause in Cause
    ),
    e.DeliveryHandled(
        consumer="c",
        delivery=Delivery(key="k", trigger="timer"),
        handled=Handled(outcome=Outcome.FAILED),
        duration=1.0,
    ),
    e.TakenOver(consumer="c", attempt=2),
    e.Fenced(consumer="c", operation="complete"),
    e.HandlerRan(consumer="c", duration=1.0),
    *(
        e.StoreCalled(store="s", operation="read", result=result, duration=1.0)
        for result in ("ok", "refused", "absent", "unavailable")
    ),
    *(e.UpkeepRan(job=job, result=result, items=1, duration=1.0)
      for job in ("purge", "survey", "sweep") for result in ("done", "failed")),
    *(e.UnfinishedCounted(consumer="c", status=status, records=1, oldest=1.0) for status in Status),
    e.MessageRelayed(destination="d", by="commit", sent=True),
]  # fmt: skip


@pytest.fixture(scope="module")
def emitted() -> dict[str, dict[str, set[str]]]:
    """The names of all metrics, their attributes, and the values that the code gives these."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    get_meter: Callable[..., Any] = metrics.get_meter
    metrics.get_meter = provider.get_meter  # type: ignore[assignment]
    try:
        observer = Metrics()
    finally:
        metrics.get_meter = get_meter
    for event in EVENTS:
        observer(event)
    told: dict[str, dict[str, set[str]]] = {}
    data: Any = reader.get_metrics_data()
    for metric in (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics):
        attributes = told.setdefault(metric.name, {})
        for point in metric.data.data_points:
            for name, value in point.attributes.items():
                attributes.setdefault(name, set()).add(value)
    provider.shutdown()
    return told


def queries() -> dict[str, str]:
    """All queries, of the alerts and of the workbook, by where they are."""
    book = json.loads((INFRA / "workbook.json").read_text())
    items = [item["content"] for item in book["items"] if item["type"] == 3]
    return {path.stem: path.read_text() for path in QUERIES} | {
        f"workbook: {item['title']}": item["query"] for item in items
    }


def names_in(query: str) -> set[str]:
    return set(re.findall(r"'(idempotency\.[a-z.]+)'", query))


def attributes_in(query: str) -> set[str]:
    by_dot = re.findall(r"customDimensions\.(\w+)", query)
    return {*by_dot, *re.findall(r"customDimensions\['(\w+)'\]", query)}


def test_every_instrument_of_the_code_is_made_to_emit(
    emitted: dict[str, dict[str, set[str]]],
) -> None:
    """Otherwise a query for it would be checked against nothing."""
    source = (ROOT / "shared/idempotency/telemetry.py").read_text()

    assert set(re.findall(r'create_\w+\(\s*"(idempotency\.[a-z.]+)"', source)) == emitted.keys()


@pytest.mark.parametrize("where", queries())
def test_a_query_asks_for_metrics_and_attributes_that_there_are(
    where: str, emitted: dict[str, dict[str, set[str]]]
) -> None:
    query = queries()[where]

    asked = names_in(query)
    assert asked
    assert asked <= emitted.keys()
    known = {attribute for name in asked for attribute in emitted[name]}
    assert attributes_in(query) <= known


@pytest.mark.parametrize("where", queries())
def test_a_query_compares_with_values_that_the_code_gives(
    where: str, emitted: dict[str, dict[str, set[str]]]
) -> None:
    query = queries()[where]
    compared = re.findall(r"customDimensions\.(\w+) (?:==|!=) '(\w+)'", query)

    for attribute, value in compared:
        given = {v for name in names_in(query) for v in emitted[name].get(attribute, ())}
        assert value in given, (attribute, value)
    if where == "upkeep-not-run":
        jobs = re.findall(r"'(\w+)', \d+[mh]", query)
        assert set(jobs) == emitted["idempotency.upkeep.runs"]["job"]


def test_a_query_reads_counts_of_histograms_and_sums_of_counters() -> None:
    """`valueCount` of a counter is how many points there were, whatever they counted."""
    for where, query in queries().items():
        if "valueCount" in query:
            assert all(name.endswith((".duration", ".age")) for name in names_in(query)), where
        if re.search(r"idempotency\.unfinished(\.age)?'", query):
            assert "valueMax" in query, where


def alerts() -> list[Resource]:
    return infra.read("alerts").of_kind(RULES)


def test_every_query_is_an_alert_and_every_alert_has_its_query() -> None:
    text = (INFRA / "alerts.bicep").read_text()

    loaded = re.findall(r"loadTextContent\('queries/([\w-]+)\.kql'\)", text)
    assert sorted(loaded) == [path.stem for path in QUERIES]
    assert {str(each.body["name"]) for each in alerts()} == {f"idempotency-{n}" for n in loaded}


def test_every_file_that_bicep_loads_is_there_and_the_workbook_is_json() -> None:
    for path in INFRA.glob("*.bicep"):
        for name in re.findall(r"loadTextContent\('([^']+)'\)", path.read_text()):
            assert (INFRA / name).is_file(), f"{path.name}: {name}"
    assert json.loads((INFRA / "workbook.json").read_text())["version"] == "Notebook/1.0"


def test_a_query_looks_no_further_back_than_its_alert_allows() -> None:
    longest = {"P2D": 48.0, "PT6H": 6.0, "PT2H": 2.0, "PT30M": 0.5, "PT15M": 0.25, "PT10M": 1 / 6}
    for each in _listed():
        span = longest[each["override"] or each["window"]]
        query = (INFRA / "queries" / f"{each['name']}.kql").read_text()
        for number, unit in re.findall(r"\b(\d+)([mh])\b", query):
            assert int(number) / (60 if unit == "m" else 1) <= span, each["name"]


def test_every_alert_names_a_section_of_the_runbook() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}

    named = [str(each["name"]) for each in _listed()]
    text = (INFRA / "alerts.bicep").read_text()
    named += re.findall(r"'\$\{runbook\}#([\w-]+)'", text)
    assert len(named) == 8
    assert set(named) <= anchors


def _listed() -> Iterator[dict[str, Any]]:
    file: BicepFile = infra.read("alerts")
    yield from file.variables["alerts"]
