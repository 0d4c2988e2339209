"""Plain stand-ins for the protobuf classes that the worker library builds its answers from.

The library imports no protobuf: it takes its message classes from the request it is given. These
keep what they are given as attributes and nothing more.
"""

import json
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any


class Message(SimpleNamespace):
    """A message whose fields are its attributes."""


class StatusResult(Message):
    """How a request to the worker ended."""

    Failure, Success, Cancelled = 0, 1, 2


class BindingInfo(Message):
    """Direction and type of one binding."""

    undefined, out, inout = 0, 1, 2


class TypedData(Message):
    """A value and its kind: the one attribute that is set, or none for an absent value."""

    def WhichOneof(self, _group: str) -> str | None:
        return next(iter(self.__dict__), None)


class ParameterBinding(Message):
    """A value for one parameter of a function."""

    def WhichOneof(self, _group: str) -> str:
        return "data"


class SameSite:
    """The values of a cookie's SameSite attribute."""

    Lax, Strict, ExplicitNone = 1, 2, 3


setattr(SameSite, "None", 0)  # protobuf's name, a keyword in Python


class RpcHttpCookie(Message):
    """A cookie of an HTTP response."""

    SameSite = SameSite


_PLAIN = (
    "FunctionEnvironmentReloadResponse",
    "FunctionLoadResponse",
    "FunctionMetadataResponse",
    "InvocationResponse",
    "NullableBool",
    "NullableDouble",
    "NullableString",
    "NullableTimestamp",
    "RpcException",
    "RpcFunctionMetadata",
    "RpcHttp",
    "RpcRetryOptions",
    "Timestamp",
    "WorkerInitResponse",
    "WorkerMetadata",
)

PROTOS = SimpleNamespace(
    StatusResult=StatusResult,
    BindingInfo=BindingInfo,
    TypedData=TypedData,
    ParameterBinding=ParameterBinding,
    RpcHttpCookie=RpcHttpCookie,
    **{name: type(name, (Message,), {}) for name in _PLAIN},
)


def typed(value: Any) -> TypedData:
    """The value in the form in which Azure's host sends it; anything but text and bytes as JSON."""
    match value:
        case None:
            return TypedData()
        case TypedData():
            return value
        case str():
            return TypedData(string=value)
        case bytes():
            return TypedData(bytes=value)
        case _:
            return TypedData(json=json.dumps(value))


def text_or_bytes(body: bytes) -> TypedData:
    """A body as text where it is UTF-8, which decodes to the identical bytes, else as bytes."""
    try:
        return TypedData(string=body.decode("utf-8"))
    except UnicodeDecodeError:
        return TypedData(bytes=body)


def strings(values: Iterable[str | None]) -> TypedData:
    """An array of texts as Azure's host sends it.

    Hazard, kept on purpose: null and empty entries are dropped, so that later entries move up.
    """
    return TypedData(collection_string=Message(string=[value for value in values if value]))


def request(**fields: Any) -> SimpleNamespace:
    """A request as the worker library takes it."""
    return SimpleNamespace(
        request=Message(**fields), properties={"host": "127.0.0.1", "protos": PROTOS}
    )


def http_data(
    method: str,
    url: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    params: Mapping[str, str],
    body: bytes,
) -> TypedData:
    """An HTTP request as data for a function."""
    return TypedData(
        http=Message(
            method=method,
            url=url,
            headers=dict(headers),
            query=dict(query),
            params=dict(params),
            body=TypedData(bytes=body) if body else TypedData(),
        )
    )
