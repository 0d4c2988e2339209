"""Fingerprints: a versioned digest of the content that must be equal in true duplicates.

A fingerprint reads ``<algorithm>:<hex>``. The algorithm is part of it, so that a deployment that
changes how content is digested never mistakes an old record for other content: fingerprints of
different algorithms are not comparable and count as *unknown, hence the same*.
"""

import hashlib
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Protocol

import msgspec

from .errors import MalformedContent

# Numbers keep their digits (1.0 is not 1, and no float rounds a price), text keeps its code points.
_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")


class Fingerprint(Protocol):
    """Digests a body to ``<algorithm>:<hex>``; raises MalformedContent when the body cannot be read."""

    def __call__(self, body: bytes, /) -> str: ...


def raw_bytes(body: bytes) -> str:
    """For producers that re-send the very same bytes."""
    return "raw1:" + hashlib.sha256(body).hexdigest()


def canonical_json(body: bytes) -> str:
    """For producers that serialise again on a re-send: key order and white space do not matter.

    Of a name that an object has twice the last value counts, as it does for the handler's parser.
    """
    return "json1:" + hashlib.sha256(canonical(_decoded(body))).hexdigest()


def canonical_json_without(*volatile: str) -> Fingerprint:
    """Canonical JSON of an object, leaving out top-level fields that differ between re-sends."""
    left_out = frozenset(volatile)

    def without(body: bytes) -> str:
        fields = json_object(body)
        return _of_fields(
            "jsonx1", {k: v for k, v in fields.items() if k not in left_out}, left_out
        )

    return without


def json_fields(*names: str) -> Fingerprint:
    """Only the named, immutable top-level fields; a missing field differs from one that is null."""
    chosen = frozenset(names)

    def only(body: bytes) -> str:
        fields = json_object(body)
        return _of_fields("jsonf1", {k: v for k, v in fields.items() if k in chosen}, chosen)

    return only


def canonical(content: object) -> bytes:
    """Decoded JSON written in one way only; raises MalformedContent when it is nested too deeply."""
    try:
        return _encoder.encode(content)
    except RecursionError as error:
        raise MalformedContent("the body is nested too deeply", reason="MalformedJson") from error


def same_content(recorded: str | None, current: str | None) -> bool:
    """Whether two fingerprints are of equal content, as far as can be known.

    Unknown (one is missing, or the algorithms differ) counts as the same: a redelivery across a
    deployment must not end as a mismatch.
    """
    if recorded is None or current is None or recorded == current:
        return True
    return recorded.partition(":")[0] != current.partition(":")[0]


def _of_fields(algorithm: str, fields: Mapping[str, object], names: Iterable[str]) -> str:
    # the choice of fields is part of the algorithm: another choice is not comparable
    choice = hashlib.sha256(_encoder.encode(sorted(names))).hexdigest()[:8]
    return f"{algorithm}.{choice}:" + hashlib.sha256(canonical(fields)).hexdigest()


def json_object(body: bytes) -> Mapping[str, object]:
    """The top-level fields of a body; raises MalformedContent when it is no JSON object."""
    content = _decoded(body)
    if not isinstance(content, dict):
        raise MalformedContent("the body is JSON but not an object", reason="MalformedJson")
    return content


def _decoded(body: bytes) -> object:
    if not body:
        raise MalformedContent("the body is empty", reason="EmptyBody")
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation, RecursionError) as error:
        raise MalformedContent(f"the body is not JSON: {error}", reason="MalformedJson") from error
