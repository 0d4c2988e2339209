"""Storage queues: a business key from the body, since the queue knows none of the producer's."""

import azure.functions as func
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency import DeliveryRejected, MissingKey, TransientFailure, canonical_json
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.triggers import storage_queue
from tests.triggers.doubles import (
    Effects,
    InstantClock,
    StorageQueue,
    Told,
    consumer_over,
    queue_message,
)

ORDER = b'{"order_id": "o-1"}'


async def test_a_re_send_has_another_id_and_receipt_and_is_a_duplicate_all_the_same() -> None:
    effects = Effects()
    broker = StorageQueue(consumer_over(MemoryStore()), effects)
    await broker.deliver(ORDER, id="q-1", pop_receipt="p-1")
    await broker.deliver(ORDER, id="q-2", pop_receipt="p-2")
    assert effects == [ORDER]


@pytest.mark.parametrize(
    "body", [b"{}", b'{"order_id": ""}', b'{"order_id": null}', b'{"order_id": 7}', b"[]", b"7"]
)
async def test_a_body_without_the_key_goes_to_the_poison_queue_and_nothing_runs(
    body: bytes,
) -> None:
    effects = Effects()
    broker = StorageQueue(consumer_over(MemoryStore()), effects)
    assert await broker.deliver(body) == "aside: MissingKey"
    assert "order_id" in broker.described[0]
    assert effects == []


async def test_an_oversized_key_goes_to_the_poison_queue() -> None:
    broker = StorageQueue(consumer_over(MemoryStore()), Effects())
    assert await broker.deliver(b'{"order_id": "%s"}' % (b"x" * 1025)) == "aside: InvalidKey"


@given(body=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode()))
def test_any_body_has_a_key_or_is_rejected(body: bytes) -> None:
    try:
        assert storage_queue.json_key("order_id")(body)
    except DeliveryRejected:
        return


def test_a_redelivery_is_told_by_the_dequeue_count() -> None:
    key = storage_queue.json_key("order_id")
    counts = (None, 1, 2)
    messages = [queue_message(ORDER, dequeue_count=count) for count in counts]
    deliveries = [storage_queue.to_delivery(m, key, canonical_json) for m in messages]
    assert [d.redelivered for d in deliveries] == [False, False, True]


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_the_dequeue_count_is_a_hint_and_the_record_decides(count: int) -> None:
    effects = Effects()
    store = MemoryStore()
    broker = StorageQueue(consumer_over(store), effects)

    # nothing is recorded, whatever the count says: the delivery before died before its claim
    assert await broker.deliver(ORDER, count=count) == "done"
    # it is recorded, whatever the count says: a re-send begins to count anew
    assert await broker.deliver(ORDER, count=6 - count) == "done"

    assert effects == [ORDER]


def test_a_key_may_be_of_the_message_where_each_is_a_request_of_its_own() -> None:
    key = storage_queue.OfMessage(lambda message: str(message.id))
    delivery = storage_queue.to_delivery(queue_message(ORDER, id="q-7"), key, None)
    assert delivery.key == "q-7"
    empty = storage_queue.OfMessage(lambda message: "")
    with pytest.raises(MissingKey):
        storage_queue.to_delivery(queue_message(ORDER), empty, None)


async def test_a_poison_queue_that_is_down_keeps_the_message_where_it_is() -> None:
    async def poison_queue(message: func.QueueMessage, reason: str, description: str) -> None:
        raise TransientFailure("the poison queue is down")

    clock = InstantClock()

    @storage_queue.idempotent(
        Told(MissingKey("x")),
        key=storage_queue.json_key("order_id"),
        poison_queue=poison_queue,
        clock=clock,
    )
    async def process(message: func.QueueMessage) -> None: ...

    with pytest.raises(TransientFailure):
        await process(queue_message(dequeue_count=3))
    assert len(clock.slept) == 1
