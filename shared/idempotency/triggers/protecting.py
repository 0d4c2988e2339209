"""What every adapter's decorator needs to know of the handler it protects."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

import azure.functions as func
from azure.functions.decorators.function_app import FunctionBuilder

from ..errors import ConfigurationError
from ..results import ResultCodec


class Handler:
    """A business function behind a trigger: its message parameter, its signature, its result's type.

    Raises TypeError when the decorators stand in the wrong order, ConfigurationError when the
    function has an output binding: the record would complete, the host die before emitting, and the
    duplicate emit nothing.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if isinstance(function, FunctionBuilder):
            raise TypeError(
                "@idempotent(...) stands above the trigger decorator, where the host would register "
                "the unprotected function. Put it directly above `def`, below every @app... decorator"
            )
        self.function = function
        self.signature = inspect.signature(function)
        self.hints = typing.get_type_hints(function)
        if not self.signature.parameters:
            raise ConfigurationError(f"{function.__name__} has no parameter to take the message")
        self.parameter = next(iter(self.signature.parameters))
        for name, hint in self.hints.items():
            if (typing.get_origin(hint) or hint) is func.Out:
                raise ConfigurationError(
                    f"{function.__name__}: the output binding {name!r} cannot be protected: after a "
                    "crash between the record and the binding nothing would be emitted. Send from "
                    "the handler, or use the outbox"
                )

    def codec(self) -> ResultCodec[Any]:
        """How results of the annotated return type are kept."""
        return ResultCodec(self.hints.get("return", Any))

    def message(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The trigger's message in a call of the function."""
        return kwargs[self.parameter] if self.parameter in kwargs else args[0]
