"""What a request says, whatever its encoding: equal in a repetition that was encoded anew."""

import hashlib
import re
from urllib.parse import parse_qsl

from ..errors import MalformedContent
from ..fingerprint import canonical_json, raw_bytes

_MOST_FIELDS = 10_000
"""A form with more is compared byte by byte."""
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)


def content_digest(body: bytes, content_type: str) -> str:
    """Digest of a body, naming how it was read.

    - form (`application/x-www-form-urlencoded`): the decoded fields; their order does not matter, but
      that of several fields of one name does;
    - `multipart/*`: the parts as they are, in their order, without the boundary, which clients make up
      for each sending;
    - JSON, under whatever content type: canonical, see `fingerprint`;
    - anything else, or what is not what it says: the bytes.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":
        return _form(body)
    if media_type.startswith("multipart/") and (boundary := _BOUNDARY.search(content_type)):
        return _multipart(body, boundary[1] or boundary[2])
    try:
        return canonical_json(body)
    except MalformedContent:
        return raw_bytes(body)


def _form(body: bytes) -> str:
    try:
        fields = parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return raw_bytes(body)
    # sorted() keeps the order of those that are equal by name
    return "form1:" + _sha256(ascii(sorted(fields, key=lambda field: field[0])).encode())


def _multipart(body: bytes, boundary: str) -> str:
    delimiter = b"--" + boundary.encode("utf-8", "surrogatepass")
    if not body.startswith(delimiter):
        return raw_bytes(body)
    parts = body.split(b"\r\n" + delimiter)
    parts[0] = parts[0].removeprefix(delimiter)
    return "parts1:" + _sha256(ascii(parts).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
