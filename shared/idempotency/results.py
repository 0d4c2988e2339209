"""How a handler's result is kept: as JSON text, read back as the type the handler declares."""

from typing import Any, NamedTuple

import msgspec

from .errors import ConfigurationError


class ResultCodec[R]:
    """Writes results down and reads them back as ``result_type``.

    The first caller is given what a later duplicate would be given: both get the decoded form.
    Dataclasses, named structs, tuples, Decimal, datetime, UUID, bytes and every falsy value come back
    equal, provided the handler's annotation names the type; without one they come back as JSON.
    Raises ConfigurationError when the type is none that can be kept.
    """

    def __init__(self, result_type: Any = Any) -> None:
        if result_type is None:
            result_type = type(None)
        try:
            self._decoder = msgspec.json.Decoder(result_type)
        except TypeError as error:
            raise ConfigurationError(
                f"results of type {result_type!r} cannot be kept ({error}): return what JSON can hold, "
                "such as a dataclass or a msgspec.Struct"
            ) from error
        self._encoder = msgspec.json.Encoder()

    def encode(self, result: R) -> str:
        """JSON text of the result; raises TypeError or ValueError when it is of no kind that can be kept."""
        text = self._encoder.encode(result)
        self._decoder.decode(text)  # a result that cannot be read back is better refused now
        return text.decode()

    def decode(self, text: str) -> R:
        """The result as every caller gets it; raises ValueError when it is of another type by now."""
        decoded: R = self._decoder.decode(text)
        return decoded


class Kept(NamedTuple):
    """A result as it will be stored; without ``text``, ``cause`` says why it cannot be."""

    text: str | None
    cause: str = ""


def kept[R](result: R, codec: ResultCodec[R], max_bytes: int) -> Kept:
    """The result as text of at most ``max_bytes``; without it the work is completed all the same."""
    try:
        text = codec.encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return Kept(None, f"of no kind that can be kept: {error}")
    size = len(text.encode())
    if size > max_bytes:
        return Kept(None, f"{size} bytes, more than {max_bytes}")
    return Kept(text)
