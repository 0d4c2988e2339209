"""Business keys out of bodies, for brokers that know no id of the producer's."""

from collections.abc import Callable

import msgspec

from ..errors import MalformedContent
from ..keys import checked, joined

type KeyOf = Callable[[bytes], str]
"""Reads the business key out of a body; raises DeliveryRejected when there is none."""


def json_key(*fields: str) -> KeyOf:
    """A business key from top-level fields of a JSON object, which must be text; several are joined.

    Joined unambiguously: no two lists of values give one key.
    """

    def read(body: bytes) -> str:
        if not body:
            raise MalformedContent("the body is empty", reason="EmptyBody")
        try:
            content = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedContent(
                f"the body is not JSON: {error}", reason="MalformedJson"
            ) from error
        values = [_text_in(content, field) for field in fields]
        return values[0] if len(values) == 1 else checked(joined(*values), what="key in its body")

    return read


def _text_in(content: object, field: str) -> str:
    value = content.get(field) if isinstance(content, dict) else None
    return checked(value if isinstance(value, str) else None, what=f"{field!r} in its body")
