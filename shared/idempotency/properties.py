"""Application properties of Service Bus messages that this module reads and writes."""

from typing import Final

DEDUPLICATION_KEY: Final = "Deduplication-Key"
"""Wins over MessageId: for re-sends that need a MessageId of their own."""
FIRST_ENQUEUED_TIME: Final = "First-Enqueued-Time"
"""Of a re-send: when the message was first enqueued, ISO 8601."""
RESEND_COUNT: Final = "Resend-Count"
"""Of a re-send: how often the message was re-sent by now, from 1."""
OUTBOX_ORDINAL: Final = "Outbox-Ordinal"
"""Of a message of the outbox: its place among those that were committed with it, from 1. They are sent
in this order, and may arrive in another after a crash."""
FORCED: Final = "Forced-Resend"
"""Of an operator's forced re-send: the text `true`."""
REASON: Final = "DeadLetterReason"
DESCRIPTION: Final = "DeadLetterErrorDescription"
"""Why a message was dead-lettered; the broker's own names."""
