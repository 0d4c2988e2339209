"""The blobs of an import, against the service: pinned by content, put together from parts."""

import uuid
from collections.abc import AsyncIterator

import pytest
from azure.storage.blob.aio import ContainerClient

from local.services.azurite import Azurite
from shared.blobs import AzureBlobs
from shared.idempotency import PermanentFailure, TransientFailure

pytestmark = pytest.mark.integration


@pytest.fixture
async def container(azurite: Azurite) -> AsyncIterator[ContainerClient]:
    name = f"imports-{uuid.uuid4().hex[:8]}"
    async with ContainerClient.from_connection_string(azurite.connection_string, name) as client:
        await client.create_container()
        yield client


@pytest.fixture
def blobs(container: ContainerClient) -> AzureBlobs:
    return AzureBlobs(lambda: container)


async def content(container: ContainerClient, name: str) -> bytes:
    return await (await container.download_blob(name)).readall()


async def test_a_blob_is_read_piece_by_piece_and_tells_its_end(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await container.upload_blob("a", b"0123456789")
    etag = await blobs.etag("a")

    assert '"' not in etag
    assert await blobs.read("a", etag, 0, 4) == (b"0123", False)
    assert await blobs.read("a", etag, 4, 6) == (b"456789", True)
    assert await blobs.read("a", etag, 8, 100) == (b"89", True)


async def test_an_empty_blob_has_an_end_and_nothing_before_it(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await container.upload_blob("empty", b"")

    assert await blobs.read("empty", await blobs.etag("empty"), 0, 100) == (b"", True)


async def test_a_blob_that_was_written_since_is_not_read(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await container.upload_blob("a", b"first")
    etag = await blobs.etag("a")
    await container.upload_blob("a", b"other", overwrite=True)

    with pytest.raises(PermanentFailure, match="BlobChanged"):
        await blobs.read("a", etag, 0, 100)


async def test_a_blob_that_is_not_there_is_told(blobs: AzureBlobs) -> None:
    with pytest.raises(PermanentFailure, match="BlobNotFound"):
        await blobs.etag("missing")


async def test_a_blob_is_put_together_of_its_parts_in_their_order_however_often(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await blobs.stage("errors", "a-02", b"two ")
    await blobs.stage("errors", "a-01", b"wrong ")
    await blobs.stage("errors", "a-01", b"one ")
    await blobs.stage("errors", "b-01", b"of another import ")

    await blobs.put_together("errors", "a-")
    first = await content(container, "errors")
    await blobs.put_together("errors", "a-")

    assert first == await content(container, "errors") == b"one two "


async def test_parts_that_were_staged_since_take_the_place_of_those_before(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await blobs.stage("errors", "a-01", b"one ")
    await blobs.put_together("errors", "a-")
    await blobs.stage("errors", "b-01", b"another ")

    await blobs.put_together("errors", "b-")

    assert await content(container, "errors") == b"another "


async def test_without_parts_there_is_no_blob_afterwards(
    container: ContainerClient, blobs: AzureBlobs
) -> None:
    await blobs.put_together("never", "a-")
    await blobs.stage("errors", "a-01", b"one ")
    await blobs.put_together("errors", "a-")

    await blobs.put_together("errors", "b-")

    assert [each.name async for each in container.list_blobs()] == []


async def test_a_service_that_does_not_answer_is_a_failure_for_now() -> None:
    gone = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YQ==;BlobEndpoint=http://127.0.0.1:1/a;"
    async with ContainerClient.from_connection_string(gone, "imports", retry_total=0) as container:
        blobs = AzureBlobs(lambda: container)
        for call in (blobs.etag("a"), blobs.read("a", "0x1", 0, 1), blobs.stage("a", "p", b"")):
            with pytest.raises(TransientFailure, match="Storage did not do it"):
                await call
        with pytest.raises(TransientFailure):
            await blobs.put_together("a", "p")
