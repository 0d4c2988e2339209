"""Idempotent Consumer: handling the same message twice has the effect of handling it once.

Three ways, in this order of preference: `VersionGuard` (by nature, no record), `Inbox` (marker and
business writes in one transaction), `Consumer` (two-phase, for effects outside the store).
Adapters for triggers are in `.triggers`, stores in `.stores`; nothing here imports an Azure SDK.
"""

from .attempt import Attempt, current_attempt
from .consumer import Consumer
from .direct import idempotent
from .downstream import downstream_uuid, send_headers, set_headers
from .effects import (
    Answer,
    CannotTell,
    DidNotHappen,
    Effects,
    Happened,
    Quarantine,
    Reconcile,
    Rerun,
    TakeoverPolicy,
    unknown_effect,
)
from .errors import (
    AttemptEnded,
    BusinessConflict,
    ConfigurationError,
    DeadlineExceeded,
    DeliveryRejected,
    IdempotencyError,
    InvalidKey,
    MalformedContent,
    MissingKey,
    PermanentFailure,
    ResultUnavailable,
    StoreUnavailable,
    TransientFailure,
    UncertainEffect,
)
from .events import Event, Observer, all_of
from .fingerprint import (
    Fingerprint,
    canonical_json,
    canonical_json_without,
    json_fields,
    raw_bytes,
)
from .inbox import Inbox
from .inbox_store import InboxStore
from .keys import joined, storage_id
from .ordering import VersionGuard, apply_if_newer
from .outbox import Message, OutboxStore
from .protected import Protected
from .records import Cause, Delivery, Handled, Outcome, Policy, Record, Status, Stored
from .relay import Outbox, Swept
from .results import ResultCodec
from .states import State, StateStore
from .store import Store
from .unit_of_work import Current, UnitOfWork, current_unit

__all__ = [
    "Answer",
    "Attempt",
    "AttemptEnded",
    "BusinessConflict",
    "CannotTell",
    "Cause",
    "ConfigurationError",
    "Consumer",
    "Current",
    "DeadlineExceeded",
    "Delivery",
    "DeliveryRejected",
    "DidNotHappen",
    "Effects",
    "Event",
    "Fingerprint",
    "Handled",
    "Happened",
    "IdempotencyError",
    "Inbox",
    "InboxStore",
    "InvalidKey",
    "MalformedContent",
    "Message",
    "MissingKey",
    "Observer",
    "Outbox",
    "OutboxStore",
    "Outcome",
    "PermanentFailure",
    "Policy",
    "Protected",
    "Quarantine",
    "Reconcile",
    "Record",
    "Rerun",
    "ResultCodec",
    "ResultUnavailable",
    "State",
    "StateStore",
    "Status",
    "Store",
    "StoreUnavailable",
    "Stored",
    "Swept",
    "TakeoverPolicy",
    "TransientFailure",
    "UncertainEffect",
    "UnitOfWork",
    "VersionGuard",
    "all_of",
    "apply_if_newer",
    "canonical_json",
    "canonical_json_without",
    "current_attempt",
    "current_unit",
    "downstream_uuid",
    "idempotent",
    "joined",
    "json_fields",
    "raw_bytes",
    "send_headers",
    "set_headers",
    "storage_id",
    "unknown_effect",
]
