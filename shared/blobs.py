"""The blobs that are imported, and what is written beside them; a container of one storage account."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

from .idempotency import PermanentFailure, TransientFailure

if TYPE_CHECKING:
    from azure.storage.blob.aio import BlobClient, ContainerClient


_NO_SUCH_RANGE = 416
"""It begins at the end of the blob, or the blob is empty."""


class Piece(NamedTuple):
    """Some bytes of a blob; ``at_end``: the last ones."""

    data: bytes
    at_end: bool


class Blobs(Protocol):
    """What an import needs of a container.

    Raises TransientFailure when it does not answer, PermanentFailure as each method says.
    """

    async def etag(self, name: str) -> str:
        """What identifies the content that a blob has now, without quotation marks.

        PermanentFailure when there is no such blob.
        """
        ...

    async def read(self, name: str, etag: str, offset: int, length: int) -> Piece:
        """So many bytes from there on, of that content; PermanentFailure when the blob has another now."""
        ...

    async def stage(self, name: str, part: str, data: bytes) -> None:
        """Keep a part of a blob to be put together; the same part again takes the place of the first.

        All parts of a blob have names of one length.
        """
        ...

    async def put_together(self, name: str, parts: str) -> None:
        """Make a blob of all parts whose names begin so, in the order of their names.

        Nothing else stays in it. Without any there is no such blob afterwards.
        """
        ...


class AzureBlobs:
    """Blobs of Azure Storage; the client is made when it is first needed, and kept."""

    def __init__(self, connect: "Callable[[], ContainerClient]") -> None:
        self._connect = connect
        self._container: ContainerClient | None = None

    async def etag(self, name: str) -> str:
        try:
            return str((await self._blob(name).get_blob_properties()).etag).strip('"')
        except (AzureError, OSError, TimeoutError) as error:
            raise _failure(name, error) from error

    async def read(self, name: str, etag: str, offset: int, length: int) -> Piece:
        try:
            download = await self._blob(name).download_blob(
                offset, length, etag=f'"{etag}"', match_condition=MatchConditions.IfNotModified
            )
            data = await download.readall()
        except (AzureError, OSError, TimeoutError) as error:
            if isinstance(error, HttpResponseError) and error.status_code == _NO_SUCH_RANGE:
                return Piece(b"", at_end=True)
            raise _failure(name, error) from error
        # "bytes 0-3/10"; the SDK's own `size` is that of the piece
        size = str(download.properties.content_range).rpartition("/")[2]
        return Piece(data, at_end=offset + len(data) >= int(size))

    async def stage(self, name: str, part: str, data: bytes) -> None:
        try:
            await self._blob(name).stage_block(part, data)
        except (AzureError, OSError, TimeoutError) as error:
            raise _failure(name, error) from error

    async def put_together(self, name: str, parts: str) -> None:
        from azure.storage.blob import BlobBlock, ContentSettings

        blob = self._blob(name)
        try:
            try:
                committed, staged = await blob.get_block_list("all")
            except ResourceNotFoundError:
                return
            found = sorted({each.id for each in (*committed, *staged) if each.id.startswith(parts)})
            if found:
                settings = ContentSettings(content_type="application/x-ndjson")
                blocks = [BlobBlock(block_id=each) for each in found]
                await blob.commit_block_list(blocks, content_settings=settings)
            elif committed:
                await blob.delete_blob()
        except (AzureError, OSError, TimeoutError) as error:
            raise _failure(name, error) from error

    def _blob(self, name: str) -> "BlobClient":
        if self._container is None:
            self._container = self._connect()
        return self._container.get_blob_client(name)


def _failure(name: str, error: Exception) -> Exception:
    """What a driver's exception is to the import."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    match status:
        case 404:
            return PermanentFailure("BlobNotFound", f"there is no blob {name!r}")
        case 412:
            return PermanentFailure(
                "BlobChanged",
                f"blob {name!r} was written since its import was asked for: ask again",
            )
        case 400:
            return PermanentFailure("InvalidBlobName", f"{name!r} cannot be the name of a blob")
    hint: Any = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After")
    role = ": give the app's identity the role Storage Blob Data Contributor"
    return TransientFailure(
        f"blob {name!r}: Storage did not do it ({status or type(error).__name__})"
        f"{role if status in (401, 403) else ''}",
        retry_after=float(hint) if hint and str(hint).isdecimal() else None,
    )
