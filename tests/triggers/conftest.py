import pytest

from tests.triggers.http_route import Route


@pytest.fixture
def route() -> Route:
    """An HTTP function over a store of its own."""
    return Route()
