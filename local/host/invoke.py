"""Invoke an app through the real worker without any service: `python -m local.host.invoke`.

One JSON object a line in, one a line out. The first line out lists the functions, or says why the
app does not load (and the process ends with 1):

    {"functions": {"process_order": "serviceBusTrigger"}}

Each line in names a function and the arguments of the builder for its trigger (see
`local.host.inputs`); a body that is no text is given as {"base64": "..."}:

    {"function": "process_order", "arguments": {"body": "{}", "message_id": "o-1"}}

Its answer, with what the function asked the settlement actions for:

    {"succeeded": true, "exception": null, "response": null, "settlements": [["complete"]]}

`retry_count` beside them is how often a retry policy has run the function before.

A function of cardinality many takes {"messages": [{...}, {...}]} as its arguments. For any other
trigger, "data" and "metadata" are handed over as they are: {"data": {"json": "{}"}}, with the
kind of the worker's protocol (json, string, bytes, collection_string, ...) as its only name.

`response` is {"status", "headers", "body"} for HTTP. `Invoker` speaks this from the other side.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from .bindings import Function
from .http import body
from .inputs import BUILDERS, service_bus_batch, service_bus_message
from .protos import Message, TypedData
from .settlement import Settlement
from .worker import IndexingError, InvocationResult, Worker, settlement_address

MOMENTS = {
    "enqueued_time",
    "expires_at",
    "expiration_time",
    "insertion_time",
    "last",
    "next_time",
    "next_visible_time",
}
STREAMS = {"eventHubTrigger", "kafkaTrigger", "rabbitMQTrigger"}
"""Their bodies come as the trigger's `dataType` asks for."""


class RecordedMessage:
    """A message whose settlement is written down; it can be settled once."""

    session_id: str | None = None

    def __init__(self) -> None:
        self.settlements: list[list[Any]] = []

    async def complete(self) -> None:
        self.settlements.append(["complete"])

    async def abandon(self) -> None:
        self.settlements.append(["abandon"])

    async def dead_letter(self, reason: str | None, description: str | None) -> None:
        self.settlements.append(["deadletter", reason, description])

    async def defer(self) -> None:
        self.settlements.append(["defer"])

    async def renew(self) -> None:
        self.settlements.append(["renew"])

    async def session_state(self) -> bytes:
        return b""

    async def set_session_state(self, state: bytes) -> None:
        self.settlements.append(["set_session_state", state.decode("utf-8", "replace")])

    async def renew_session(self) -> float:
        raise NotImplementedError("there are no sessions here")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.host.invoke", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--app", default=".", help="directory of the app (default: this one)")
    arguments = parser.parse_args()
    # What the app prints must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return asyncio.run(_run(Path(arguments.app).resolve(), sys.stdin, answers))


async def _run(app: Path, lines: TextIO, answers: TextIO) -> int:
    settlement = Settlement()
    # A loop of its own, so that an app which settles on the worker's loop does not wait for itself.
    settlement_loop = asyncio.new_event_loop()
    thread = threading.Thread(target=settlement_loop.run_forever, daemon=True)
    thread.start()

    async def elsewhere(coroutine: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, settlement_loop)
        return await asyncio.wrap_future(future)

    port = await elsewhere(settlement.start())
    try:
        try:
            worker = await Worker.start(app)
        except IndexingError as error:
            _answer(answers, {"error": str(error), "stack_trace": error.stack_trace})
            return 1
        settlement_address(port)
        kinds = {name: function.trigger_type for name, function in worker.functions.items()}
        _answer(answers, {"functions": kinds})
        while line := await asyncio.to_thread(lines.readline):
            _answer(answers, await _invoke(worker, settlement, json.loads(line)))
        await worker.stop()
        return 0
    finally:
        await elsewhere(settlement.stop())
        settlement_loop.call_soon_threadsafe(settlement_loop.stop)
        thread.join()
        settlement_loop.close()


async def _invoke(worker: Worker, settlement: Settlement, order: dict[str, Any]) -> dict[str, Any]:
    function = worker.functions.get(order["function"])
    if function is None:
        return {"error": f"there is no function '{order['function']}'"}
    data, metadata, tokens = _input(function, order)
    message = RecordedMessage()
    settlement.locked.update(dict.fromkeys(tokens, message))
    result = await worker.invoke(
        function.name,
        data,
        metadata,
        trace_parent=order.get("trace_parent"),
        retry_count=order.get("retry_count", 0),
    )
    settlement.locked.clear()
    return {
        "succeeded": result.succeeded,
        "exception": result.exception,
        "response": _response(result),
        "settlements": message.settlements,
    }


def _input(
    function: Function, order: dict[str, Any]
) -> tuple[TypedData, dict[str, Any], list[str]]:
    """Data and metadata, and the lock tokens of the messages in them."""
    if "data" in order:
        return _raw(order["data"]), order.get("metadata", {}), []
    arguments = order.get("arguments", {})
    if "messages" in arguments:
        inputs = [service_bus_message(**_arguments(one)) for one in arguments["messages"]]
        data, metadata = service_bus_batch(inputs)
        return data, metadata, [one["LockToken"] for _, one in inputs]
    if function.trigger_type in STREAMS and _is_binary(function):
        arguments = {"binary": True, **arguments}
    data, metadata = BUILDERS[function.trigger_type](**_arguments(arguments))
    return data, metadata, [metadata["LockToken"]] if "LockToken" in metadata else []


def _is_binary(function: Function) -> bool:
    return str(function.trigger.get("dataType", "")).lower() == "binary"


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """A builder's arguments out of their JSON form."""
    arguments = dict(given)
    if isinstance(arguments.get("body"), dict):
        arguments["body"] = base64.b64decode(arguments["body"]["base64"])
    for name in MOMENTS & arguments.keys():
        arguments[name] = datetime.fromisoformat(arguments[name])
    return arguments


def _raw(data: dict[str, Any]) -> TypedData:
    [(kind, value)] = data.items()
    if kind == "bytes":
        value = base64.b64decode(value["base64"])
    if kind.startswith("collection_"):
        value = Message(**{kind.removeprefix("collection_"): value})
    return TypedData(**{kind: value})


def _response(result: InvocationResult) -> dict[str, Any] | None:
    value = result.return_value
    if value is None or value.WhichOneof("data") != "http":
        return None
    return {
        "status": int(value.http.status_code),
        "headers": dict(value.http.headers),
        "body": body(value.http.body).decode("utf-8", "replace"),
    }


def _answer(answers: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main())
