"""The memory of what was completed seconds ago: bounded in time and number."""

from shared.idempotency import Status, Stored
from shared.idempotency import recent as recent_module
from shared.idempotency.recent import Recent
from shared.idempotency.testing import FakeClock, a_record


def completed(key: str) -> Stored:
    return Stored(record=a_record(key, status=Status.COMPLETED), etag="")


async def test_a_record_is_remembered_for_its_seconds_and_not_longer() -> None:
    clock = FakeClock()
    recent = Recent(clock, 10.0)
    recent.keep(completed("k"))
    await clock.advance(9.9)
    found = recent.find("k")
    assert found is not None
    assert found.age == 9.9
    await clock.advance(0.1)
    assert recent.find("k") is None


def test_nothing_is_remembered_when_it_is_off() -> None:
    recent = Recent(FakeClock(), 0.0)
    recent.keep(completed("k"))
    assert recent.find("k") is None


def test_the_oldest_are_forgotten_beyond_the_limit() -> None:
    recent = Recent(FakeClock(), 10.0)
    most = recent_module._MOST
    for number in range(most + 5):
        recent.keep(completed(f"k{number}"))
    assert recent.find("k4") is None
    assert recent.find("k5") is not None
    assert len(recent._known) == most


async def test_what_is_over_does_not_stay_in_memory() -> None:
    clock = FakeClock()
    recent = Recent(clock, 10.0)
    for number in range(50):
        recent.keep(completed(f"k{number}"))
    await clock.advance(11)
    recent.keep(completed("new"))
    assert len(recent._known) == 1
