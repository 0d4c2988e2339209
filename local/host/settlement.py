"""The settlement service that the app's `ServiceBusMessageActions` talks to.

The same gRPC service that Azure's host offers, on a loopback port. It knows the messages of the
invocations that run now, by lock token, and asks each one to settle itself.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio
from azurefunctions.extensions.bindings.protos import settlement_pb2, settlement_pb2_grpc
from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]


class LockedMessage(Protocol):
    """A message under lock. Each method raises what the broker refuses, such as a lost lock."""

    session_id: str | None

    async def complete(self) -> None: ...
    async def abandon(self) -> None: ...
    async def dead_letter(self, reason: str | None, description: str | None) -> None: ...
    async def defer(self) -> None: ...
    async def renew(self) -> None: ...
    async def session_state(self) -> bytes: ...
    async def set_session_state(self, state: bytes) -> None: ...
    async def renew_session(self) -> float: ...


class Settlement(settlement_pb2_grpc.SettlementServicer):  # type: ignore[misc]
    """Settlement actions on the messages in `locked`, a mapping from lock token to message.

    A token that is not (or no longer) there is refused with FAILED_PRECONDITION, as Azure's host
    does: the message was settled before, or its invocation is over. A refusal of the broker's
    reaches the caller as ABORTED with the broker's words.
    """

    def __init__(self) -> None:
        self.locked: dict[str, LockedMessage] = {}
        self._server: Any = None

    async def start(self) -> int:
        """Listen on a free loopback port and return it."""
        self._server = grpc.aio.server()
        settlement_pb2_grpc.add_SettlementServicer_to_server(self, self._server)
        port: int = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)

    async def Complete(self, request: Any, context: Any) -> Empty:
        return await self._settle(request.locktoken, context, lambda message: message.complete())

    async def Abandon(self, request: Any, context: Any) -> Empty:
        return await self._settle(request.locktoken, context, lambda message: message.abandon())

    async def Deadletter(self, request: Any, context: Any) -> Empty:
        reason = _optional(request, "deadletterReason")
        description = _optional(request, "deadletterErrorDescription")
        return await self._settle(
            request.locktoken, context, lambda message: message.dead_letter(reason, description)
        )

    async def Defer(self, request: Any, context: Any) -> Empty:
        return await self._settle(request.locktoken, context, lambda message: message.defer())

    async def RenewMessageLock(self, request: Any, context: Any) -> Empty:
        message = await self._find(request.locktoken, context)
        await _ask(message.renew(), context)
        return Empty()

    async def GetSessionState(self, request: Any, context: Any) -> Any:
        message = await self._session(request.sessionId, context)
        state = await _ask(message.session_state(), context)
        return settlement_pb2.GetSessionStateResponse(sessionState=state)

    async def SetSessionState(self, request: Any, context: Any) -> Empty:
        message = await self._session(request.sessionId, context)
        await _ask(message.set_session_state(request.sessionState), context)
        return Empty()

    async def RenewSessionLock(self, request: Any, context: Any) -> Any:
        message = await self._session(request.sessionId, context)
        until = Timestamp()
        until.FromMilliseconds(int(await _ask(message.renew_session(), context) * 1000))
        return settlement_pb2.RenewSessionLockResponse(lockedUntil=until)

    async def _settle(
        self, token: str, context: Any, action: Callable[[LockedMessage], Awaitable[None]]
    ) -> Empty:
        await _ask(action(await self._find(token, context)), context)
        # Only what was settled is forgotten: after a refusal the caller may try again.
        self.locked.pop(token, None)
        return Empty()

    async def _find(self, token: str, context: Any) -> LockedMessage:
        message = self.locked.get(token)
        if message is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"LockToken {token} not found."
            )
            raise AssertionError  # abort raised
        return message

    async def _session(self, session_id: str, context: Any) -> LockedMessage:
        for message in self.locked.values():
            if message.session_id == session_id:
                return message
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION, f"SessionId {session_id} not found."
        )
        raise AssertionError  # abort raised


async def _ask[T](action: Awaitable[T], context: Any) -> T:
    try:
        return await action
    except Exception as error:
        await context.abort(grpc.StatusCode.ABORTED, f"{type(error).__name__}: {error}")
        raise AssertionError from error  # abort raised


def _optional(request: Any, name: str) -> str | None:
    return getattr(request, name).value if request.HasField(name) else None
