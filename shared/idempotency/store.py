"""The store protocol: four methods, each ONE conditional write or ONE point read.

To add a store, implement these and add one line to ``tests/contract/test_stores.py``:
`testing.StoreContract` then proves them. `documents` writes a record down as a flat document and reads
it back, unknown fields included; `keys.storage_id` makes an identifier of any key.
"""

from typing import Protocol

from .records import Record, Stored


class Store(Protocol):
    """Keeps at most one record per (consumer, key).

    Every method raises StoreUnavailable when the service is down, throttles (then with its own
    ``retry_after``) or did not answer; after that it is *not known* whether the write took effect,
    and the caller issues the same write again. A refused condition is a return value, no exception.
    ``insert`` and ``replace`` raise MalformedContent when the record is too large for the service.
    A call ends within seconds, far below a lease, its driver's own retries included. Implementations
    translate their driver's errors in one place and keep no per-call state.
    """

    @property
    def name(self) -> str:
        """A short name for metrics and logs, such as ``table``."""
        ...

    async def read(self, consumer: str, key: str) -> Stored | None:
        """Point read, strongly consistent with every write answered before; None when there is none.

        ``age`` of the answer is judged by the store's own clock: the time of the read less the time
        stamp of the last write. A store without a clock says so and uses local time.
        """
        ...

    async def insert(self, record: Record) -> Stored | None:
        """Write the record if there is none for its (consumer, key); None when there is one.

        Of any number of concurrent inserts exactly one succeeds. The answer's ``etag`` is new with
        every write, whatever was written, and its ``age`` is 0.
        """
        ...

    async def replace(self, record: Record, etag: str) -> Stored | None:
        """Replace the whole record if it is still the one ``etag`` names; None when it is not.

        Gone counts as changed. Never a merge: no property of the old document survives by itself.
        """
        ...

    async def delete(self, record: Record, etag: str) -> bool:
        """Delete the record if it is still the one ``etag`` names; False when it is not, or is gone."""
        ...

    async def close(self) -> None:
        """Let go of connections; the store is not used afterwards."""
        ...
