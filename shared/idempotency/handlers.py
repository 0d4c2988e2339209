"""What every decorator asks of the function it protects."""

import typing
from collections.abc import Callable
from typing import Any

from .errors import ConfigurationError
from .results import ResultCodec


def name_of(function: Callable[..., Any]) -> str:
    """What to call it in a complaint."""
    return getattr(function, "__qualname__", None) or repr(function)


def refuse_registered(function: Callable[..., Any]) -> None:
    """Refuse what a trigger decorator has already registered with the host, unprotected.

    Raises TypeError. Told by where its type comes from: the core does not import azure.functions.
    """
    if type(function).__module__.partition(".")[0] == "azure":
        raise TypeError(
            "@idempotent(...) stands above the trigger decorator, where the host would register "
            "the unprotected function. Put it directly above `def`, below every @app... decorator"
        )


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's annotations as types; ConfigurationError when one names what is not there."""
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of {name_of(function)} cannot be resolved ({error}): import the type "
            "where the function is defined, not only for type checkers"
        ) from error
    except TypeError:
        return {}  # a callable object: it says nothing


def result_codec(function: Callable[..., Any]) -> ResultCodec[Any]:
    """How results of the annotated return type are kept; without one they come back as plain JSON."""
    try:
        return ResultCodec(hints_of(function).get("return", Any))
    except ConfigurationError as error:
        raise ConfigurationError(f"{name_of(function)}: {error}") from error
