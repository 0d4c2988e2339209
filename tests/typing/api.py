"""What type checkers make of the public API: checked by mypy --strict, never run.

An `assert_type` that does not hold, or an ignored error that does not occur, fails the check.
"""

from decimal import Decimal
from typing import assert_type

from shared.idempotency import (
    Consumer,
    Delivery,
    Handled,
    Inbox,
    InboxStore,
    Protected,
    ResultCodec,
    Store,
    UnitOfWork,
    current_unit,
)
from shared.idempotency.stores.memory import MemoryStore
from shared.idempotency.stores.memory_inbox import MemoryInbox
from shared.idempotency.stores.observed import ObservedStore


async def price() -> Decimal:
    return Decimal(1)


async def notify() -> None:
    return None


async def results_are_inferred_through_a_consumer(consumer: Consumer) -> None:
    handled = await consumer.handle(Delivery(key="k"), price, ResultCodec(Decimal))
    assert_type(handled, Handled[Decimal])
    assert_type(handled.result, Decimal | None)
    nothing = await consumer.handle(Delivery(key="k"), notify, ResultCodec())
    assert_type(nothing.result, None)


async def results_are_inferred_through_an_inbox(inbox: Inbox) -> None:
    handled = await inbox.handle(Delivery(key="k"), price, ResultCodec(Decimal), wait=0)
    assert_type(handled, Handled[Decimal])
    assert_type(current_unit(), UnitOfWork)


async def every_form_is_protected(consumer: Consumer, inbox: Inbox) -> None:
    for form in (consumer, inbox):
        protected: Protected = form
        handled = await protected.handle(Delivery(key="k"), price, ResultCodec(Decimal))
        assert_type(handled.result, Decimal | None)


def stores_fit_their_protocols() -> tuple[Store, InboxStore]:
    store: Store = ObservedStore(MemoryStore(), lambda event: None)
    return store, MemoryInbox()


async def a_codec_of_another_type_is_an_error(consumer: Consumer) -> None:
    codec: ResultCodec[int] = ResultCodec(int)
    await consumer.handle(Delivery(key="k"), price, codec)  # type: ignore[arg-type]


async def a_delivery_needs_a_key_and_only_names() -> None:
    Delivery()  # type: ignore[call-arg]
    Delivery("k")  # type: ignore[call-arg]
