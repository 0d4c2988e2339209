"""A provider and a caller for each test."""

from collections.abc import Iterator

import pytest

from local.payments import PaymentProvider
from tests.local.payments.calls import HASTE, Caller


@pytest.fixture
def provider() -> Iterator[PaymentProvider]:
    with PaymentProvider() as running:
        yield running


@pytest.fixture
def caller(provider: PaymentProvider) -> Iterator[Caller]:
    caller = Caller(provider)
    with caller.http:
        yield caller


@pytest.fixture
def hasty(provider: PaymentProvider) -> Iterator[Caller]:
    """A caller who hardly waits for an answer."""
    caller = Caller(provider, timeout=HASTE)
    with caller.http:
        yield caller
