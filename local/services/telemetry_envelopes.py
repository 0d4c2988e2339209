"""What the Azure Monitor exporter posts, as plain data: one class for each kind of envelope."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What every kind has.

    role: the sending app's name (`OTEL_SERVICE_NAME`, or the function app's).
    trace_id, parent_id: the operation it belongs to; empty outside any.
    attributes: as the app gave them; the exporter turns every value into text.
    """

    time: str
    role: str = ""
    trace_id: str = ""
    parent_id: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric(Envelope):
    """A measurement since the last export: a counter's increase, or a histogram's sum.

    So a counter's values add up to its total, over time and over processes. Gauges and
    up-down counters are the exception: each of theirs is the present value.

    count: number of recordings in a histogram, else 1.
    minimum, maximum: of a histogram.
    """

    name: str
    value: float
    count: int = 1
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, kw_only=True)
class Request(Envelope):
    """A span of kind server or consumer: something the app was asked to do."""

    name: str
    span_id: str
    success: bool
    result_code: str
    duration: str


@dataclass(frozen=True, kw_only=True)
class Dependency(Envelope):
    """Any other span: something the app asked of others, or of itself."""

    name: str
    span_id: str
    success: bool
    result_code: str
    duration: str
    dependency_type: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Message(Envelope):
    """A log line. severity: 0 verbose, 1 information, 2 warning, 3 error, 4 critical."""

    text: str
    severity: int


@dataclass(frozen=True, kw_only=True)
class ExceptionReport(Envelope):
    """An exception, logged or recorded on a span."""

    type_name: str
    text: str
    stack: str


def read(envelope: Mapping[str, Any]) -> list[Envelope]:
    """The contents of one posted envelope; nothing for kinds that no one here asks about."""
    tags = envelope.get("tags", {})
    data = envelope["data"]
    body = data["baseData"]
    common = {
        "time": envelope["time"],
        "role": tags.get("ai.cloud.role", ""),
        "trace_id": tags.get("ai.operation.id", ""),
        "parent_id": tags.get("ai.operation.parentId", ""),
        "attributes": dict(body.get("properties") or {}),
    }
    match data["baseType"]:
        case "MetricData":
            return [_metric(point, common) for point in body["metrics"]]
        case "RequestData":
            return [Request(**_span(body, "responseCode"), **common)]
        case "RemoteDependencyData":
            return [
                Dependency(
                    **_span(body, "resultCode"),
                    dependency_type=body.get("type") or "",
                    target=body.get("target") or "",
                    **common,
                )
            ]
        case "MessageData":
            severity = body.get("severityLevel")
            return [Message(text=body["message"], severity=cast("int", severity or 0), **common)]
        case "ExceptionData":
            return [_exception(thrown, common) for thrown in body["exceptions"]]
    return []


def _metric(point: Mapping[str, Any], common: Mapping[str, Any]) -> Metric:
    return Metric(
        name=point["name"],
        value=point["value"],
        count=point.get("count") or 1,
        minimum=point.get("min"),
        maximum=point.get("max"),
        **common,
    )


def _span(body: Mapping[str, Any], result_code: str) -> dict[str, Any]:
    return {
        "name": body.get("name") or "",
        "span_id": body["id"],
        "success": body["success"],
        "result_code": body.get(result_code) or "",
        "duration": body["duration"],
    }


def _exception(thrown: Mapping[str, Any], common: Mapping[str, Any]) -> ExceptionReport:
    return ExceptionReport(
        type_name=thrown["typeName"],
        text=thrown.get("message") or "",
        stack=thrown.get("stack") or "",
        **common,
    )
