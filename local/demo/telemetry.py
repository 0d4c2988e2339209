"""What the app has reported of itself, as it arrived at the telemetry sink."""

from dataclasses import dataclass

from local.services.telemetry_envelopes import Message
from local.services.telemetry_sink import TelemetrySink

CONSUMER = "process_order"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Sums over all consumers; what a killed one had not sent is not in them.

    handled: deliveries of orders with an outcome.
    redelivered, resent: duplicates by cause.
    refused_commits: transactions that lost against the first one for the same order.
    store_share: part of the time of handling that was spent waiting for the store; None when
        nothing arrived.
    """

    handled: int
    redelivered: int
    resent: int
    refused_commits: int
    store_share: float | None

    @classmethod
    def read(cls, sink: TelemetrySink) -> "Telemetry":
        duplicates = {
            cause: round(sink.total("idempotency.duplicates", consumer=CONSUMER, cause=cause))
            for cause in ("redelivery", "resend")
        }
        return cls(
            handled=round(sink.total("idempotency.deliveries", consumer=CONSUMER)),
            redelivered=duplicates["redelivery"],
            resent=duplicates["resend"],
            refused_commits=sum(
                metric.count
                for metric in sink.metrics(
                    "idempotency.store.duration", operation="commit", result="refused"
                )
            ),
            store_share=_store_share(sink),
        )


def _store_share(sink: TelemetrySink) -> float | None:
    """Of every consumer's handling time: the log lines have the one, a histogram the other."""
    handling = sum(
        float(message.attributes["duration"])
        for message in sink.envelopes(Message)
        if "outcome" in message.attributes and "duration" in message.attributes
    )
    if not handling:
        return None
    return min(1.0, sink.total("idempotency.store.duration") / handling)
