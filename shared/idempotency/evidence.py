"""Evidence of a mismatch: which top-level fields differ, without keeping any payload.

A record may keep a short digest of each top-level field of a JSON object, keyed with a random salt
of its own. The salt makes equal values of different records look different; whoever holds the record
can still test a guess, so a digest is not to be published as if it were nothing.
"""

import hashlib
import secrets

import msgspec

from .errors import MalformedContent
from .fingerprint import canonical, json_object

_MOST_FIELDS = 64
_LONGEST_NAME = 64
_DIGEST_BYTES = 6


class _Evidence(msgspec.Struct, frozen=True):
    salt: str
    fields: dict[str, str]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Evidence)


def evidence_of(body: bytes) -> str | None:
    """The digests as text for the record; None when the body is no JSON object of up to 64 fields."""
    salt = secrets.token_hex(8)
    fields = _digests(body, salt)
    return None if fields is None else _encoder.encode(_Evidence(salt, fields)).decode()


def changed_fields(evidence: str | None, body: bytes) -> tuple[str, ...]:
    """The names, sorted, of the fields that differ from the recorded ones; none where nothing can tell."""
    if evidence is None:
        return ()
    try:
        recorded = _decoder.decode(evidence)
    except msgspec.DecodeError:
        return ()
    current = _digests(body, recorded.salt)
    if current is None:
        return ()
    names = recorded.fields.keys() | current.keys()
    return tuple(sorted(n for n in names if recorded.fields.get(n) != current.get(n)))


def _digests(body: bytes, salt: str) -> dict[str, str] | None:
    if body[:1] not in (b"{", b" ", b"\n", b"\r", b"\t"):
        return None  # not worth parsing: no object
    try:
        fields = json_object(body)
        if len(fields) > _MOST_FIELDS or any(len(name) > _LONGEST_NAME for name in fields):
            return None
        key = salt.encode()
        return {name: _digest(canonical(value), key) for name, value in fields.items()}
    except MalformedContent:
        return None


def _digest(value: bytes, key: bytes) -> str:
    return hashlib.blake2b(value, key=key, digest_size=_DIGEST_BYTES).hexdigest()
