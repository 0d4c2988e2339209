"""The payment provider as tests and the demo hold it: an address, its truth, its faults."""

import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from aiohttp import web

from .api import Api
from .books import Books
from .charge_request import ChargeRequest
from .clock import Clock, Timetable
from .faults import Faults
from .ledger import Charge, Ledger
from .server import Server
from .settlement import Settlement, SettlementRequest, Settlements


class PaymentProvider:
    """Up while the context lasts; the ledger can be read before, during and after. Thread-safe.

        with PaymentProvider() as provider:
            provider.faults.time_out_after_charging(reference="o-7")
            ...  # POST f"{provider.url}/v1/charges"
            assert provider.charged_twice() == ()

    host, port: where it listens; on a free port when it is 0, and on the same one when it is
        started again.
    key_retention: how long a key is known from its first use; zero: keys are not honoured.
    seed: decides what faults with a rate strike.

    Stopped and started again it has its ledger, its keys and its waiting faults. Calls that have
    not landed by then never will.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key_retention: timedelta = timedelta(hours=24),
        seed: int = 0,
    ) -> None:
        self.host = host
        self.port = port
        self.faults = Faults(seed)
        self.clock = Clock(on_advance=lambda: self._server.run(self._timetable.catch_up))
        self._ledger = Ledger()
        self._settlements = Settlements()
        self._books = Books[ChargeRequest](self._ledger.append, self.clock, key_retention)
        self._settling = Books[SettlementRequest](
            self._settlements.append, self.clock, key_retention
        )
        self._timetable = Timetable(self.clock)
        self._server = Server()
        self._change = threading.Condition()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    @property
    def ledger(self) -> tuple[Charge, ...]:
        """Every charge there was, in the order they happened."""
        return self._ledger.all()

    @property
    def settlements(self) -> tuple[Settlement, ...]:
        """Every settlement there was, in the order they happened."""
        return self._settlements.all()

    def charges(self, reference: str) -> tuple[Charge, ...]:
        """The charges for one reference, oldest first."""
        return self._ledger.of_reference(reference)

    def charged_twice(self) -> tuple[str, ...]:
        """The references that were charged more than once."""
        return self._ledger.charged_twice()

    def start(self) -> Self:
        """Begin to listen. Raises OSError when a fixed port is taken."""
        self.port = self._server.start(self._application, self.host, self.port)
        return self

    def stop(self) -> None:
        """Listen no more; calls that are under way are neither answered nor carried out."""
        self._server.stop()
        self._timetable.clear()
        self._books.give_up_running()
        self._settling.give_up_running()

    def decline(self, name: str) -> None:
        """Decline this customer or reference from now on, as those that begin with `declined`."""
        self._server.run(lambda: self._books.decline(name))

    def forget_keys(self) -> None:
        """Forget all keys that have had an answer, as if their retention had passed.

        A search by key still finds their charges.
        """
        self._server.run(self._books.forget_keys)
        self._server.run(self._settling.forget_keys)

    def wait_for(self, condition: Callable[["PaymentProvider"], object], timeout: float) -> None:
        """Wait until the condition holds, looking again whenever something happened here.

        timeout: seconds. Raises TimeoutError, naming what has happened, when they are over.
        """
        with self._change:
            if not self._change.wait_for(lambda: condition(self), timeout):
                struck = dict(self.faults.struck)
                raise TimeoutError(
                    f"not within {timeout:g} s; {len(self.ledger)} charges, faults: {struck}"
                )

    def _application(self) -> web.Application:
        api = Api(
            self._books,
            self._ledger,
            self._settling,
            self._settlements,
            self.faults,
            self._timetable,
            self._tell,
        )
        return api.application()

    def _tell(self) -> None:
        with self._change:
            self._change.notify_all()
