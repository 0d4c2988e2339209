"""The handler behind an adapter's decorator: what it takes, what it returns, how it is called."""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import azure.functions as func

from ..errors import ConfigurationError
from ..handlers import hints_of, name_of, refuse_registered, result_codec
from ..results import ResultCodec
from ..running import as_work


class Decorator(Protocol):
    """Makes a handler what the host calls: asynchronous, of the same parameters, returning nothing.

    What the handler returns is recorded, and goes to nobody: a message has no caller.
    """

    def __call__[**P](
        self, function: Callable[P, object], /
    ) -> Callable[P, Coroutine[Any, Any, None]]: ...


class Handler:
    """A business function behind a trigger that hands it one ``message_type``.

    Raises TypeError when the decorators stand in the wrong order, ConfigurationError when the
    function cannot be protected: it takes no message of that type, or it has an output binding, whose
    record would complete, the host die before emitting, and the duplicate emit nothing.
    """

    def __init__(self, function: Callable[..., Any], message_type: type[Any]) -> None:
        refuse_registered(function)
        self.function = function
        self.signature = inspect.signature(function)
        self.hints = hints_of(function)
        self.parameter = self._message_parameter(message_type)
        for name in self.signature.parameters:
            self._refuse_output_binding(name)

    @property
    def name(self) -> str:
        return name_of(self.function)

    def codec(self) -> ResultCodec[Any]:
        """How results of the annotated return type are kept."""
        return result_codec(self.function)

    def message(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The trigger's message in a call of the function; TypeError when the call does not fit it."""
        return self.signature.bind(*args, **kwargs).arguments[self.parameter]

    def work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        """The call of the function as asynchronous work."""
        return as_work(self.function, *args, **kwargs)

    def expose[**P, R](
        self, protected: Callable[P, R], *, returns: Any, **added: Any
    ) -> Callable[P, R]:
        """Show ``protected`` to the worker as the function, with parameters ``added`` for it to fill.

        ``returns`` is what the adapter hands the worker, whatever the handler returns.
        """
        functools.update_wrapper(protected, self.function)
        parameters = list(self.signature.parameters.values())
        has_rest = parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        rest = [parameters.pop()] if has_rest else []
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            for name, annotation in added.items()
        ]
        exposed: Any = protected
        exposed.__signature__ = inspect.Signature([*parameters, *rest], return_annotation=returns)
        exposed.__annotations__ = {**self.function.__annotations__, **added, "return": returns}
        return protected

    def expose_instead[W: Callable[..., Any]](
        self, protected: W, *, returns: Any, **parameters: Any
    ) -> W:
        """Show ``protected`` to the worker under the function's name, with these parameters alone.

        For adapters whose handler takes something else than the trigger hands over, and only that:
        raises ConfigurationError when the function has another parameter. ``parameters`` are those of
        ``protected`` that the worker is to fill, with their types.
        """
        if len(self.signature.parameters) != 1:
            raise ConfigurationError(f"{self.name} takes one parameter, {self.parameter!r}")
        exposed: Any = protected
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(exposed, name, getattr(self.function, name, None))
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        shown = [inspect.Parameter(name, kind, annotation=t) for name, t in parameters.items()]
        exposed.__signature__ = inspect.Signature(shown, return_annotation=returns)
        exposed.__annotations__ = {"return": returns, **parameters}
        return protected

    def _message_parameter(self, message_type: type[Any]) -> str:
        """The parameter of that type; without annotations the first, as the host would have it."""
        for name in self.signature.parameters:
            hint = self.hints.get(name)
            if isinstance(hint, type) and issubclass(hint, message_type):
                return name
        first = next(iter(self.signature.parameters), None)
        if first is None or first in self.hints:
            raise ConfigurationError(
                f"{self.name} needs a parameter of type {message_type.__name__}: one message per call"
            )
        return first

    def _refuse_output_binding(self, name: str) -> None:
        hint = self.hints.get(name)
        if hint is None and name not in (self.parameter, "context"):
            raise ConfigurationError(
                f"{self.name}: parameter {name!r} needs an annotation, so that an output binding "
                "is not mistaken for an input"
            )
        if (typing.get_origin(hint) or hint) is func.Out:
            raise ConfigurationError(
                f"{self.name}: the output binding {name!r} cannot be protected: after a crash "
                "between the record and the binding nothing would be emitted. Send from the "
                "handler, or use the outbox"
            )
