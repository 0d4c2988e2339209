"""Exit codes, and the errors that lead to them in the words of the task.

==  =======================================================================
0   done; for `check`: nothing is wrong
1   `check` found something wrong
2   the command line makes no sense, or says not where to look
3   there is no such record, and no such dead letter
4   refused: the record does not allow it, or was changed meanwhile
5   a service did not answer, or does not take the credential
6   the question was answered with no
==  =======================================================================
"""

import asyncio
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any

from ..errors import ConfigurationError, InvalidKey, MissingKey, StoreUnavailable
from ..interventions import ChangedMeanwhile, Refused
from ..resending import BrokerUnavailable
from ..scanning import SeveralRecords


class Exit(IntEnum):
    """What a command ends with."""

    DONE = 0
    WRONG = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNAVAILABLE = 5
    DECLINED = 6


class Ended(Exception):
    """A command ends early, with a sentence for the person."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


_CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (ConfigurationError, Exit.USAGE),
    (MissingKey, Exit.USAGE),
    (InvalidKey, Exit.USAGE),
    (SeveralRecords, Exit.REFUSED),
    (Refused, Exit.REFUSED),
    (ChangedMeanwhile, Exit.REFUSED),
    (StoreUnavailable, Exit.UNAVAILABLE),
    (BrokerUnavailable, Exit.UNAVAILABLE),
)


def run(command: Coroutine[Any, Any, None]) -> None:
    """Run a command to its exit code; a mistake of ours alone shows a trace."""
    try:
        asyncio.run(command)
    except Ended as ended:
        _say(str(ended))
        raise SystemExit(ended.code) from None
    except tuple(kind for kind, _ in _CODES) as error:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        _say(f"{error}{_hint(error)}")
        raise SystemExit(code) from None


def _hint(error: Exception) -> str:
    """What may be wrong where a credential was refused: the SDK's own words are in the cause."""
    from azure.core.exceptions import ClientAuthenticationError

    cause = error.__cause__
    if isinstance(cause, ClientAuthenticationError) or "answered 403" in str(error):
        return ". The credential was refused: `az login`, and the data roles of infra/roles.bicep"
    return ""


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - it talks to a person at a terminal
