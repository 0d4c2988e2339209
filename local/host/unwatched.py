"""Keeps the host's own SDK calls out of the app's telemetry: both are in one process."""

import contextvars


def unwatched() -> contextvars.Context:
    """A context in which whatever is traced counts as not sampled.

    In Azure the host is a process of its own and its receiving and settling are no spans of the app.
    Needs a sampler that goes by the parent.
    """
    apart = contextvars.copy_context()
    apart.run(_under_an_unsampled_parent)
    return apart


def _under_an_unsampled_parent() -> None:
    try:
        from opentelemetry import context, trace
    except ImportError:
        return  # nothing here traces
    parent = trace.SpanContext(
        trace_id=1, span_id=1, is_remote=True, trace_flags=trace.TraceFlags(0)
    )
    context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
