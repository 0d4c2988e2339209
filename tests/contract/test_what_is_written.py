"""What lies in the services: properties, expiry, places. Seen through the SDKs, not through ours."""

import asyncio
import uuid
from typing import Any

import pytest
from azure.data.tables.aio import TableClient

from shared.idempotency import (
    ConfigurationError,
    Consumer,
    Delivery,
    Inbox,
    MalformedContent,
    Outcome,
    PermanentFailure,
    Policy,
    Record,
    ResultCodec,
    Status,
    current_unit,
)
from shared.idempotency.stores.cosmos import PARTITION_PATH, CosmosStore
from shared.idempotency.stores.cosmos_access import Container
from shared.idempotency.stores.cosmos_inbox import CosmosInbox
from shared.idempotency.stores.table import TableStore
from shared.idempotency.stores.table_access import to_entity
from shared.idempotency.stores.table_inbox import TableInbox
from shared.idempotency.testing import HOSTILE_KEYS, a_record
from tests.contract.services import (
    cosmos_client,
    orders_container,
    records_container,
    table_client,
)

CODEC: ResultCodec[str] = ResultCodec(str)


async def _items(container: Any) -> dict[str, dict[str, Any]]:
    return {item["key"]: item async for item in container.items.read_all_items()}


@pytest.mark.integration
async def test_cosmos_items_expire_only_when_they_are_finished(
    request: pytest.FixtureRequest,
) -> None:
    """⚠ An unfinished or quarantined record that expired would open its key again."""
    async with cosmos_client(request) as client:
        container = records_container(client)
        store = CosmosStore(container)
        run = uuid.uuid4().hex
        finish = {"finished_at": 1000.0, "expires_at": 1000.0 + 3600}
        for status in Status:
            record = a_record(f"{run}-{status}", status=status)
            await store.insert(record.replaced(**finish) if status.is_finished else record)
        items = await _items(container)
        ttls = {status: items[f"{run}-{status}"].get("ttl") for status in Status}
        reopened = await store.read("contract", f"{run}-{Status.FAILED}")
        assert reopened is not None
        await store.replace(
            reopened.record.replaced(status=Status.QUARANTINED, **finish), reopened.etag
        )
        again = await _items(container)
    assert ttls == {
        status: 3600 if status in (Status.COMPLETED, Status.FAILED) else None for status in Status
    }
    assert "ttl" not in again[f"{run}-{Status.FAILED}"]
    definition = await _definition(request)
    assert definition["defaultTtl"] == -1


async def _definition(request: pytest.FixtureRequest) -> dict[str, Any]:
    async with cosmos_client(request) as client:
        return dict(await records_container(client).items.read())


@pytest.mark.integration
async def test_a_replaced_entity_or_item_has_no_property_of_the_old_one(
    request: pytest.FixtureRequest,
) -> None:
    old = a_record(extra={"colour": "blue"}, failure_reason="Old")
    new = old.replaced(extra={}, failure_reason=None)
    async with table_client(request) as table, cosmos_client(request) as client:
        for store in (TableStore(table), CosmosStore(records_container(client))):
            stored = await store.insert(old)
            assert stored is not None
            await store.replace(new, stored.etag)
        (entity,) = [e async for e in table.query_entities(f"key eq '{old.key}'")]
        item = (await _items(records_container(client)))[old.key]
    for document in (entity, item):
        assert "colour" not in document
        assert "failure_reason" not in document


@pytest.mark.integration
async def test_the_original_key_is_kept_readable_beside_its_storage_form(
    request: pytest.FixtureRequest,
) -> None:
    run = uuid.uuid4().hex
    async with table_client(request) as table:
        for key in HOSTILE_KEYS:
            await TableStore(table).insert(a_record(key, consumer=run))
        kept = {e["key"] async for e in table.query_entities(f"consumer eq '{run}'")}
    readable = {key.encode("utf-8", "backslashreplace").decode() for key in HOSTILE_KEYS}
    assert kept == readable


@pytest.mark.integration
async def test_records_of_a_consumer_spread_over_its_buckets(
    request: pytest.FixtureRequest,
) -> None:
    run = uuid.uuid4().hex
    async with table_client(request) as table:
        for number in range(60):
            await TableStore(table).insert(a_record(f"order-{number}", consumer=run))
        partitions = {e["PartitionKey"] async for e in table.query_entities(f"consumer eq '{run}'")}
    assert len(partitions) > 30
    assert all(partition.startswith(f"{run}~") for partition in partitions)


@pytest.mark.integration
async def test_a_result_beyond_what_a_property_holds_is_not_kept_but_the_work_is_completed(
    request: pytest.FixtureRequest,
) -> None:
    """The policy may allow more than the store can hold: the effect has happened all the same."""
    async with table_client(request) as table:
        consumer = Consumer("large", TableStore(table), policy=Policy(max_result_bytes=10**6))
        key = uuid.uuid4().hex

        async def work() -> str:
            return "x" * 40_000

        first = await consumer.handle(Delivery(key=key), work, CODEC)
        again = await consumer.handle(Delivery(key=key, forced=True), work, CODEC)
    assert (first.outcome, first.result_kept) == (Outcome.PROCESSED, False)
    assert (again.outcome, again.result_kept) == (Outcome.DUPLICATE, False)


@pytest.mark.integration
async def test_the_longest_refusal_of_the_longest_key_fits_every_store(
    request: pytest.FixtureRequest,
) -> None:
    async def refuse() -> str:
        raise PermanentFailure("R" * 9999, "\U0001f600" * 99_999)

    async with table_client(request) as table, cosmos_client(request) as client:
        for store in (TableStore(table), CosmosStore(records_container(client))):
            key = uuid.uuid4().hex.ljust(1024, "/")
            handled = await Consumer("refusing", store).handle(Delivery(key=key), refuse, CODEC)
            assert handled.outcome is Outcome.FAILED
            stored = await store.read("refusing", key)
            assert stored is not None
            assert stored.record.status is Status.FAILED


# -- documents beside a marker


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey", "Timestamp", "idempotency_json"])
def test_a_table_document_cannot_choose_its_own_place(name: str) -> None:
    """⚠ A write into another partition would not be in the marker's transaction."""
    with pytest.raises(ConfigurationError, match=name):
        to_entity("partition", "row", {name: "elsewhere"})


@pytest.mark.parametrize(
    "value",
    [
        "x" * 32_769,
        "\U0001f600" * 16_385,
        ["x" * 33_000],
        "\ud800",
        ["\ud800"],
        2**63,
        -(2**63) - 1,
    ],
    ids=["text", "pairs", "json", "surrogate", "in json", "large", "small"],
)
def test_a_table_property_that_cannot_be_held_is_malformed_content_naming_it(value: Any) -> None:
    with pytest.raises(MalformedContent, match="lines"):
        to_entity("partition", "row", {"lines": value})


def test_a_table_property_at_its_limits_is_accepted() -> None:
    entity = to_entity("p", "r", {"text": "x" * 32_768, "most": 2**63 - 1, "nothing": None})
    assert entity["text"] == "x" * 32_768
    assert entity["most"].value == 2**63 - 1
    assert "nothing" not in entity


@pytest.mark.integration
@pytest.mark.parametrize("document", [{"id": "elsewhere"}, {"order_id": "elsewhere"}])
async def test_a_cosmos_document_cannot_choose_its_own_place(
    request: pytest.FixtureRequest, document: dict[str, str]
) -> None:
    """⚠ A second partition would hold a second marker."""

    async def work() -> str:
        current_unit().create("line-1", document)
        return "never"

    async with cosmos_client(request) as client:
        store = CosmosInbox(orders_container(client), partition_property="order_id")
        inbox = Inbox("places", store)
        key = uuid.uuid4().hex
        with pytest.raises(ConfigurationError, match="beside the marker"):
            await inbox.handle(Delivery(key=key), work, CODEC)
        assert await store.read(*inbox.place_of(key)) is None


@pytest.mark.integration
async def test_an_entity_that_is_a_marker_never_expires(request: pytest.FixtureRequest) -> None:
    async def work() -> str:
        current_unit().mark({"ttl": 60})
        return "never"

    async with cosmos_client(request) as client:
        store = CosmosInbox(orders_container(client), partition_property="order_id")
        with pytest.raises(ConfigurationError, match="must not expire"):
            await Inbox("expiring", store, entity_is_marker=True).handle(
                Delivery(key=uuid.uuid4().hex), work, CODEC
            )


@pytest.mark.integration
async def test_a_marker_that_is_an_entity_survives_a_whole_business_update(
    request: pytest.FixtureRequest,
) -> None:
    async def work() -> str:
        current_unit().mark({"status": "placed"})
        return "placed"

    key = uuid.uuid4().hex
    async with table_client(request, suffix="entity") as table:
        inbox = Inbox(
            "entities", TableInbox(table), entity_is_marker=True, policy=Policy(memory=0.0)
        )
        await inbox.handle(Delivery(key=key, fingerprint="json1:aa"), work, CODEC)
        await _shipped(table, key)
        delivery = Delivery(key=key, fingerprint="json1:aa", redelivered=True)
        again = await inbox.handle(delivery, work, CODEC)
    assert (again.outcome, again.result) == (Outcome.DUPLICATE, "placed")


async def _shipped(table: TableClient, key: str) -> None:
    entity = await table.get_entity(key, key)
    await table.update_entity({**entity, "status": "shipped"})


def test_first_sequence_numbers_of_64_bits_are_text_so_that_no_json_number_rounds_them() -> None:
    from shared.idempotency.documents import to_document

    record: Record = a_record(first_sequence_number=2**60 + 1)
    assert to_document(record)["first_sequence_number"] == str(2**60 + 1)


@pytest.mark.integration
async def test_of_many_that_find_the_container_missing_each_writes_its_record(
    request: pytest.FixtureRequest,
) -> None:
    """Each creates it; all but one are told that it is there."""
    async with (
        cosmos_client(request) as client,
        table_client(request, suffix=f"x{uuid.uuid4().hex[:8]}") as table,
    ):
        for store in (
            CosmosStore(
                Container(
                    client,
                    database=f"d{uuid.uuid4().hex[:8]}",
                    container="records",
                    partition_path=PARTITION_PATH,
                )
            ),
            TableStore(table),
        ):
            answers = await asyncio.gather(*(store.insert(a_record()) for _ in range(10)))
            assert all(answer is not None for answer in answers)
