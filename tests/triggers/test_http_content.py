"""HTTP: a body that says the same in another encoding is the same request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.idempotency.triggers.http_content import content_digest
from tests.triggers.http_route import Route, problem_of, request

FORM = "application/x-www-form-urlencoded"


async def answered(route: Route, body: bytes, content_type: str) -> str:
    """What becomes of the request under its one key: `made`, `replayed` or `refused`."""
    answer = await route(request(body=body, content_type=content_type))
    if answer.status_code == 422:
        assert problem_of(answer) == (422, "key-reused")
        return "refused"
    return "replayed" if "Idempotent-Replayed" in answer.headers else "made"


@pytest.mark.parametrize(
    ("again", "becomes"),
    [
        (b"a=1&b=2&b=3", "replayed"),
        (b"b=2&b=3&a=1", "replayed"),
        (b"%61=%31&b=2&b=3", "replayed"),
        (b"a=1&b=3&b=2", "refused"),
        (b"a=1&b=2", "refused"),
        (b"a=1&b=2&b=3&c=", "refused"),
        (b"a=1&b=2&b=3&", "replayed"),
    ],
)
async def test_a_form_is_its_fields_whatever_their_order_and_encoding(
    route: Route, again: bytes, becomes: str
) -> None:
    assert await answered(route, b"a=1&b=2&b=3", FORM) == "made"
    assert await answered(route, again, f"{FORM}; charset=utf-8") == becomes


async def test_a_form_of_too_many_fields_is_compared_byte_by_byte(route: Route) -> None:
    fields = [b"f%d=1" % n for n in range(20_000)]
    assert await answered(route, b"&".join(fields), FORM) == "made"
    assert await answered(route, b"&".join(fields), FORM) == "replayed"
    assert await answered(route, b"&".join(reversed(fields)), FORM) == "refused"


def parts(boundary: str, *contents: str) -> tuple[bytes, str]:
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="f{n}"\r\n\r\n{content}\r\n'
        for n, content in enumerate(contents)
    ]
    body = "".join(lines) + f"--{boundary}--\r\n"
    return body.encode(), f'multipart/form-data; charset=utf-8; boundary="{boundary}"'


async def test_parts_are_the_same_behind_another_boundary(route: Route) -> None:
    """Clients make up a boundary for each sending, a repetition included."""
    assert await answered(route, *parts("one", "a", "b")) == "made"
    assert await answered(route, *parts("another", "a", "b")) == "replayed"
    for other in (("a",), ("b", "a"), ("a", "b", ""), ("a", "c")):
        assert await answered(route, *parts("one", *other)) == "refused"


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=x", ""],
)
async def test_what_is_not_what_it_says_is_compared_byte_by_byte(
    route: Route, content_type: str
) -> None:
    assert await answered(route, b"--y\r\n\r\na", content_type) == "made"
    assert await answered(route, b"--y\r\n\r\na", content_type) == "replayed"
    assert await answered(route, b"--y\r\n\r\nb", content_type) == "refused"


@given(
    body=st.binary(max_size=60),
    content_type=st.sampled_from(
        [
            "",
            FORM,
            "application/json",
            "multipart/form-data; boundary=a",
            "multipart/x;boundary=\udcff",
        ]
    )
    | st.text(max_size=30),
)
def test_every_body_has_one_digest_that_says_how_it_was_read(
    body: bytes, content_type: str
) -> None:
    digest = content_digest(body, content_type)
    assert digest == content_digest(bytes(body), content_type)
    assert digest.partition(":")[0] in {"form1", "parts1", "json1", "raw1"}


@given(
    fields=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=4),
    other=st.data(),
)
def test_forms_are_equal_exactly_when_their_fields_of_each_name_are(
    fields: list[tuple[str, str]], other: st.DataObject
) -> None:
    from urllib.parse import urlencode

    def named(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
        by_name: dict[str, list[str]] = {}
        for name, value in pairs:
            by_name.setdefault(name, []).append(value)
        return by_name

    again = other.draw(st.permutations(fields))
    one, two = (
        content_digest(urlencode(f, errors="surrogatepass").encode(), FORM) for f in (fields, again)
    )
    assert (one == two) == (named(fields) == named(again))
