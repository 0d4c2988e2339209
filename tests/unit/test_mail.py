"""What the mail provider's answers mean: nothing sent, never to be sent, or nobody knows."""

from collections.abc import Iterator

import pytest

from local.mail import MailCatcher
from shared.idempotency import PermanentFailure, TransientFailure
from shared.idempotency.effects import refused_for_good, unknown_effect
from shared.mail import MailProvider


@pytest.fixture(scope="module")
def catcher() -> Iterator[MailCatcher]:
    with MailCatcher() as catcher:
        yield catcher


async def refused(catcher: MailCatcher, status: int) -> Exception:
    """What the call raises that gets this answer."""
    catcher.refuse_with = [status]
    provider = MailProvider(catcher.url, timeout=20)
    try:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is the question
            await provider.send("c-1", "Your order", "We have it.")
    finally:
        await provider.close()
    assert catcher.mails == []
    return raised.value


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_given_a_mail_that_is_refused_then_it_failed_for_good(
    catcher: MailCatcher, status: int
) -> None:
    error = await refused(catcher, status)
    assert isinstance(error, PermanentFailure)
    assert refused_for_good(error)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_given_a_provider_that_does_not_let_us_in_then_the_mail_is_not_given_up(
    catcher: MailCatcher, status: int
) -> None:
    """A token that has run out concerns every mail: none of them may be recorded as failed."""
    error = await refused(catcher, status)
    assert isinstance(error, TransientFailure)
    assert error.retry_after == 7
    assert not unknown_effect(error)
    assert not refused_for_good(error)


@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 503, 504])
async def test_given_an_answer_that_leaves_it_open_then_the_mail_is_in_doubt(
    catcher: MailCatcher, status: int
) -> None:
    """A 409 says that the first request with the key still runs: its mail may be under way."""
    error = await refused(catcher, status)
    assert unknown_effect(error)
