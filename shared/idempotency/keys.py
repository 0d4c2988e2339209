"""Deduplication keys: how they are checked, joined and written down. Pure functions.

A key identifies the *logical* message: equal in every redelivery and re-send. What must never be
part of one: correlation id, lock token, sequence number, delivery count, pop receipt, enqueued or
received time, or any field that may change between two sends of the same message.
"""

import hashlib
import re

from .errors import InvalidKey, MissingKey

MAX_KEY_BYTES = 1024
_READABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@=,-]{0,119}", re.ASCII)


def checked(key: str | None, *, what: str = "deduplication key") -> str:
    """Return ``key`` if it can identify a message.

    Raises MissingKey when it is None or empty, InvalidKey beyond 1,024 bytes of UTF-8.
    ``what`` names, in the words of the trigger, what the sender has to set.
    """
    if not key:
        raise MissingKey(
            f"the message has no {what}; without it duplicates cannot be recognised: its sender has to set "
            "one"
        )
    size = len(_encoded(key))
    if size > MAX_KEY_BYTES:
        raise InvalidKey(
            f"the {what} has {size} bytes; at most {MAX_KEY_BYTES} can be kept: send a digest of it"
        )
    return key


def joined(*parts: str | None, what: str = "deduplication key") -> str:
    """Join several parts to one key so that no two different lists of parts give the same key.

    Each part is written behind its length. Raises MissingKey naming the position of an empty part.
    """
    for position, part in enumerate(parts):
        if not part:
            raise MissingKey(
                f"part {position + 1} of {len(parts)} of the {what} is missing; without it different "
                "messages would have one key"
            )
    return checked("".join(f"{len(part)}:{part};" for part in parts if part), what=what)


def parts_of(key: str) -> tuple[str, ...]:
    """The parts that `joined` made the key of; raises InvalidKey for any other key."""
    parts, rest = [], key
    while rest:
        length, colon, behind = rest.partition(":")
        size = int(length) if length.isascii() and length.isdigit() else -1
        if not colon or size < 1 or behind[size : size + 1] != ";":
            raise InvalidKey("the deduplication key was not joined of parts")
        parts.append(behind[:size])
        rest = behind[size + 1 :]
    return tuple(parts)


def storage_id(key: str) -> str:
    """The form of a key that any store takes as an identifier: 1 to 120 letters, digits and -_.:@=,

    A key made only of these that begins with a letter or digit is kept as it is; any other becomes
    ``!`` and its SHA-256, so that two different keys never collide, not even by case, normalisation,
    trailing spaces or by one being the other's hash (``!`` is in no readable key). Whoever stores it
    keeps the original beside it.
    """
    if _READABLE.fullmatch(key):
        return key
    return "!" + hashlib.sha256(_encoded(key)).hexdigest()


def bucket(key: str, buckets: int) -> int:
    """Spread keys evenly over ``buckets`` numbers, the same way in every process and release."""
    return int.from_bytes(hashlib.blake2b(_encoded(key), digest_size=4).digest()) % buckets


def presentable(key: str) -> str:
    """A key as text that any service and log takes: half surrogate pairs are written as escapes.

    For people to read, not to tell keys apart.
    """
    return key.encode("utf-8", "backslashreplace").decode()


def _encoded(key: str) -> bytes:
    # surrogatepass: a key may hold half a surrogate pair, and must still differ from every other
    return key.encode("utf-8", "surrogatepass")
